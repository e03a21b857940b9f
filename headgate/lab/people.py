"""What people and their devices do all day: come, move, go, and read the web."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.lab.day import HOUR, Action, Day
from headgate.lab.leases import Stay, Use
from headgate.lab.linux_logs import page
from headgate.lab.site import (
    BY_NAME,
    CLIENTS,
    DC,
    DOMAIN,
    OFFICE,
    PHONE,
    PRINTER,
    WEB,
    WIFI,
    WINDOWS,
    Client,
)
from headgate.lab.windows_logs import background, value_set
from headgate.lab.zeek_logs import connection, lookup, plain, secure

SITES = (
    "www.wikipedia.org", "news.example.org", "mail.example.com", "docs.example.com",
    "login.example.net", "cdn.example.net", "video.example.org", "maps.example.com",
    "github.com", "objects.githubusercontent.com", "www.bbc.co.uk", "registry.npmjs.org",
    "d3ag4hukkh62yn.cloudfront.net", "r4---sn-4g5e6nsz.googlevideo.com",
    "telemetry-incoming.r53-2.services.mozilla.com", "outlook.office365.com", "teams.example.com",
)  # fmt: skip
PAGES = ("/", "/wiki/Home", "/wiki/Holidays", "/cantine", "/static/app.js", "/api/tickets?page=2",
         "/search?q=holiday+plan", "/favicon.ico")  # fmt: skip
_RUN = "HKU\\S-1-5-21-111-222-333-1104\\Software\\Microsoft\\Windows\\CurrentVersion\\Run\\OneDrive"
GONE = ("/wiki/Old", "/apple-touch-icon.png", "/robots.txt")


def stays(day: Day) -> list[Stay]:
    """Where each client is, and when: its presences of the day, in order."""
    return [stay for client in CLIENTS for stay in _stays(day, client)]


def _stays(day: Day, client: Client) -> Iterator[Stay]:
    dice, name, mac = day.dice, client.name, client.mac
    if client.system == PRINTER:
        yield Stay(name, mac, OFFICE, day.at(0.01), day.at(24), "vanish")
    elif name.startswith("lt-"):
        yield from _roaming(day, client, dice.uniform(7.5, 9), dice.uniform(16.5, 18.5))
    elif client.system == PHONE:
        yield from _phone(day, client)
    elif name == "lx-07":
        yield Stay(name, mac, OFFICE, day.at(dice.uniform(9, 9.6)), day.at(13), "vanish")
        yield Stay(name, mac, WIFI, day.at(13.1), day.at(dice.uniform(14, 15)), "vanish")
        yield Stay(name, mac, OFFICE, day.at(15.2), day.at(dice.uniform(18, 19.5)), "release")
    else:
        # Asleep at lunch, for some longer than a lease runs: another may get the address.
        come, go = dice.uniform(6.5, 9), dice.uniform(16, 19)
        lunch = dice.uniform(11.5, 12.5)
        back = lunch + dice.uniform(0.4, 1.8)
        yield Stay(name, mac, OFFICE, day.at(come), day.at(lunch), "vanish")
        yield Stay(name, mac, OFFICE, day.at(back), day.at(go), dice.choice(("release", "vanish")))


def _roaming(day: Day, client: Client, now: float, end: float) -> Iterator[Stay]:
    """Desk, meeting, desk: most people pull the plug and say nothing."""
    network = OFFICE
    while now < end:
        until = min(end, now + day.dice.uniform(0.3, 1.6))
        leaving = "release" if day.dice.random() < 0.3 else "vanish"
        yield Stay(client.name, client.mac, network, day.at(now), day.at(until), leaving)
        now = until + day.dice.uniform(0.01, 0.25)
        network = WIFI if network == OFFICE else OFFICE


def _phone(day: Day, client: Client) -> Iterator[Stay]:
    """In and out; with a private hardware address that it changes now and then."""
    now, mac = day.dice.uniform(7, 8), client.mac
    while now < 20:
        if day.dice.random() < 0.4:
            mac = "5a:" + ":".join(f"{day.dice.randrange(256):02x}" for _ in range(5))
        until = now + day.dice.uniform(0.1, 1.2)
        yield Stay(client.name, mac, WIFI, day.at(now), day.at(until), "vanish")
        now = until + day.dice.uniform(0.05, 0.9)


def work(day: Day, use: Use) -> None:
    """What a device does while it has an address."""
    client, dice = BY_NAME[use.device], day.dice
    if client.system == PRINTER:
        for hour in range(24):
            _note(day, use, use.start + hour * HOUR + 60, "asks for its time server")
            lookup(day, use.start + hour * HOUR + 60, use.ip, "pool.ntp.org")
        return
    now = use.start + 3
    while (now := now + dice.expovariate(1 / 150)) < use.end - 3:
        _visit(day, use, now)
    if client.system == WINDOWS:
        _by_itself(day, use, client)


def _visit(day: Day, use: Use, now: float) -> None:
    dice, ip = day.dice, use.ip
    chance = dice.random()
    _note(day, use, now, "reads the web")
    if chance < 0.15:
        gone = dice.random() < 0.1
        uri, code = (dice.choice(GONE), 404) if gone else (dice.choice(PAGES), 200)
        if dice.random() < 0.01:
            uri, code = "/search?q=union+select+committee+minutes", 200
        plain(day, now, ip, f"intranet.{DOMAIN}", uri, to=WEB.ip, code=code)
        page(day, now + 0.02, ip, uri, code, "Mozilla/5.0 (Windows NT 10.0; Win64; x64)")
    elif chance < 0.2:
        # What proxies and captive portals are looked for with.
        lookup(day, now, ip, f"wpad.{DOMAIN}", rcode=(3, "NXDOMAIN"))
        plain(day, now + 0.1, ip, "www.msftconnecttest.com", "/connecttest.txt", kind="text/plain")
    elif chance < 0.21:
        # Browsers look for tampering resolvers with names that do not exist.
        for _ in range(3):
            name = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randrange(7, 15)))
            lookup(day, now, ip, f"{name}.{DOMAIN}", rcode=(3, "NXDOMAIN"))
    else:
        for nth in range(dice.randrange(1, 5)):
            secure(day, now + nth * 0.2, ip, dice.choice(SITES))


def _by_itself(day: Day, use: Use, client: Client) -> None:
    """Kerberos and file shares at the start, Windows' background when there is time, updates."""
    dice, now = day.dice, use.start + 4
    for port, service in ((88, "krb_tcp"), (389, "ldap_tcp"), (445, "gssapi,smb,krb")):
        connection(day, now, use.ip, (DC.ip, port), service)
    _note(day, use, now, "logs in to the domain")
    drive = f"C:\\Users\\{client.user}\\AppData\\Local\\Microsoft\\OneDrive\\OneDrive.exe"
    value_set(day, now + 5, client.name, client.user, drive, _RUN, f'"{drive}" /background')
    if use.end - use.start > 2_900 and dice.random() < 0.5:
        background(day, use.start + 60, client.name, client.user, use.ip)
        _note(day, use, use.start + 60, "Windows' own services (recorded)")
    if dice.random() < 0.3 and use.end - use.start > 900:
        _update(day, use, use.start + 600)
    if dice.random() < 0.25 and use.end - use.start > 900:
        _scan_files(day, use, use.start + 700)


def _update(day: Day, use: Use, now: float) -> None:
    """Windows Update fetches parts by plain HTTP, some from an address alone (a peer or cache)."""
    for nth in range(12):
        uri = f"/filestreamingservice/files/{day.dice.getrandbits(128):032x}?P1=1&P2=404"
        plain(
            day, now + nth, use.ip, "8.tlu.dl.delivery.mp.microsoft.com", uri,
            agent="Microsoft-Delivery-Optimization/10.1", code=206, kind="application/vnd.ms-cab",
        )  # fmt: skip
    plain(
        day, now + 20, use.ip, "198.18.44.9", "/files/windows10.0-kb5066791-x64.cab",
        to="198.18.44.9", agent="Microsoft-Delivery-Optimization/10.1",
        kind="application/vnd.ms-cab",
    )  # fmt: skip
    _note(day, use, now, "Windows Update", "files from a bare address")


def _scan_files(day: Day, use: Use, now: float) -> None:
    """An antivirus product asks for files by their hash, in names: two a second for half a minute.
    Both zones are such products' own; the labels are made up."""
    for nth in range(60):
        label = f"{day.dice.getrandbits(160):040x}"
        zone = "hash.cymru.com" if nth % 3 == 0 else "w.20.a.sophosxl.net"
        lookup(day, now + nth * 0.5, use.ip, f"{label}.{zone}", "A" if nth % 3 else "TXT")
    _note(day, use, now, "antivirus asks for hashes over DNS", "60 random names in 30 seconds")


def _note(day: Day, use: Use, now: float, what: str, looks_bad: str = "") -> None:
    day.did(Action(now, use.device, what, use.mac, use.ip, looks_bad))
