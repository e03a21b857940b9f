"""Holes of files, clouds and the rest (`tests.ingest.sources.holes`)."""

from __future__ import annotations

from tests.ingest.sources.daemon_holes import SSHD
from tests.ingest.sources.holes import (
    STAMP,
    Holes,
    apache,
    audit,
    element,
    leases_csv,
    no_space,
    percent,
    plain,
    tabs,
)

_DHCP = ("DHCPACK on 6.6.6.6 to 02:42:ac:77:0b:20 (mallory) via eth0",)
_AUDIT = "msg=audit(1772442000.123:77): pid=21 uid=0 auid=4294967295 ses=4294967295 "
_WINDOWS = (
    "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><Provider "
    "Name='Microsoft-Windows-Security-Auditing'/><EventID>4625</EventID><Version>0</Version>"
    "<Level>0</Level><Task>12544</Task><Opcode>0</Opcode><Keywords>0x8010000000000000</Keywords>"
    "<TimeCreated SystemTime='2026-03-02T09:00:00.0000000Z'/><EventRecordID>7</EventRecordID>"
    "<Channel>Security</Channel><Computer>h</Computer></System><EventData>"
)
_ZEEK = (
    b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\thttp\n"
    b"#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tmethod\thost\turi\tuser_agent\t"
    b"status_code\tusername"
)
FILES = (
    Holes(
        "auditd",
        (
            "type=USER_LOGIN " + _AUDIT + 'msg=\'op=login acct={} exe="/usr/sbin/sshd" hostname=? '
            "addr=10.0.0.5 terminal=ssh res=failed'",
            "type=USER_AUTH " + _AUDIT + "msg='op=PAM:authentication grantors=? acct={} "
            'exe="/usr/sbin/sshd" hostname=10.0.0.5 addr=10.0.0.5 terminal=ssh res=failed\'',
        ),
        escape=audit,
        imitated=(
            'x" exe="/usr/sbin/sshd" hostname=6.6.6.6 addr=6.6.6.6 terminal=ssh res=success\'',
            'acct="mallory" addr=6.6.6.6 res=success',
        ),
    ),
    Holes(
        "aws_cloudfront",
        tuple(
            "2026-03-02\t09:00:00\tFRA2\t2390282\t10.0.0.5\tGET\td1.cloudfront.net\t/"
            + "\t403\t".join(pair)
            + "\tb=c\t-\tError\tMRVMF7KydIvxMWfJ==\td1.example.net\thttps\t-\t0.001"
            for pair in (("a{}", "-\tcurl"), ("a", "{}\tcurl"), ("a", "-\t{}"))
        ),
        escape=percent,
        imitated=("a\t200\t-\tcurl\tb\t-\tHit\tx==\td\thttps\t-\t1 6.6.6.6 mallory",),
    ),
    Holes(
        "aws_elb",
        tuple(
            "https 2026-03-02T09:00:00.186641Z app/my-lb/50dc6c 10.0.0.5:2817 10.0.0.9:80 "
            f'0.1 0.1 0.1 403 403 0 57 "GET https://h.example:443/a{path} HTTP/1.1" "{agent}" '
            'ECDHE TLSv1.2 arn:aws:x "Root=1-5833" "h.example" "arn:aws:acm:x" 1 '
            '2026-03-02T09:00:00.000000Z "forward" "-" "-" "10.0.0.9:80" "403" "-" "-"'
            for path, agent in (("{}", "curl"), ("", "{}"))
        ),
        escape=apache,
        imitated=(
            'a" "b" - - 6.6.6.6:1 6.6.6.6:80 0.1 0.1 0.1 200 200 0 57 "GET http://a/ HTTP/1.1" "c"',
        ),
    ),
    Holes(
        "aws_s3_access",
        tuple(
            "79a59df9 bucket1 [02/Mar/2026:09:00:00 +0000] 10.0.0.5 79a59df9 3E57427F3EXAMPLE "
            f'REST.GET.OBJECT {key} "GET /bucket1/{key} HTTP/1.1" 403 AccessDenied 113 - 7 - '
            f'"{referrer}" "{agent}" - s9lz= SigV4 ECDHE AuthHeader b.s3.amazonaws.com TLSV1.2 - -'
            for key, referrer, agent in (("{0}", "-", "-"), ("k", "{}", "-"), ("k", "-", "{}"))
        ),
        escape=percent,
        imitated=(
            'mallory b [02/Mar/2026:09:00:00 +0000] 6.6.6.6 mallory 3E5 REST.GET.OBJECT k "GET / '
            'HTTP/1.1" 200 - 1 - 7 - "-" "-" -',
        ),
    ),
    # No field of a flow is a text; what came into its place is no flow.
    Holes(
        "aws_vpcflow",
        ("2 123456789010 eni-1 10.0.0.5 10.0.0.9 1 22 6 20 4249 1772442000 1772442060 REJECT {}",),
        imitated=(
            "2 123456789010 eni-1 6.6.6.6 6.6.6.6 1 22 6 20 4249 1772442000 1772442060 ACCEPT OK",
        ),
    ),
    Holes(
        "checkpoint",
        tuple(
            "<134>1 2026-03-02T09:00:01Z m CheckPoint 1 - "
            f'[action:"Failed Log In"; origin:"10.0.0.1"; time:"1772442000"; {name}'
            f'client_ip:"10.0.0.5"; product:"SmartConsole"; reason:"{reason}"]'
            for name, reason in (('administrator:"{}"; ', "x"), ("", "{}"))
        ),
        escape=apache,
        imitated=(
            'x"; action:"Log In"; client_ip:"6.6.6.6"; src:"6.6.6.6"; administrator:"mallory"; ',
        ),
    ),
    Holes(
        "iis",
        tuple(
            f"2026-03-02 09:00:00 10.0.0.9 GET {path} - 443 {user} 10.0.0.5 {agent} - 401 2 2 15"
            for path, user, agent in (("/{}", "-", "x"), ("/", "{}", "x"), ("/", "-", "{}"))
        ),
        escape=no_space,
        imitated=("2026-03-02 09:00:00 6.6.6.6 GET / - 443 mallory 6.6.6.6 x - 200 0 0 1",),
        header=b"#Software: Microsoft Internet Information Services 10.0\n"
        b"#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip "
        b"cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken",
    ),
    Holes(
        "infoblox",
        (
            "DHCPACK on 10.0.0.5 to 02:42:ac:77:0b:19 ({}) via eth1 relay 10.0.0.1 "
            "lease-duration 1800 (RENEW) uid 01:02:42:ac:77:0b:19",
            "r-l-e:10.0.0.5,Issued,{},02:42:ac:77:0b:19,1772442000,1772528400,,$",
        ),
        "<30>Mar  2 09:00:00 ns1 dhcpd[7]: ",
        imitated=(
            *_DHCP,
            "r-l-e:6.6.6.6,Issued,mallory,02:42:ac:77:0b:20,1772442000,1772528400,,$",
        ),
    ),
    Holes(
        "infoblox",
        ("client @0x7f 10.0.0.5#1234 ({}): query: a.b IN A +E(0)K (10.0.0.1)",),
        "<30>Mar  2 09:00:00 ns1 named[7]: ",
        no_space,
        ("client @0x7f 6.6.6.6#1 (a.b): query: a.b IN A + (6.6.6.6)",),
    ),
    Holes(
        "isc_dhcpd_leases",
        (
            "lease 10.0.0.5 {{\n  starts 1 2026/03/02 09:00:00;\n  ends 1 2026/03/02 10:00:00;\n"
            "  binding state active;\n  hardware ethernet 02:42:ac:77:0b:19;\n"
            '  client-hostname "{}";\n}}',
        ),
        escape=apache,
        imitated=(
            'x";\n}}\nlease 6.6.6.6 {{\n  hardware ethernet 02:42:ac:77:0b:20;\n  client-hostname "'
            'mallory";\n}}'.replace("{{", "{").replace("}}", "}"),
        ),
    ),
    Holes(
        "kea_dhcp4",
        (
            "[hwtype=1 02:42:ac:77:0b:19], cid=[no info], tid=0x1: including Hostname option in "
            "the server's response: {}",
        ),
        "2026-03-02 09:00:00.123 DEBUG [kea-dhcp4.ddns/1.1] DHCP4_RESPONSE_HOSTNAME_DATA ",
        imitated=(
            "INFO [kea-dhcp4.leases/1.1] DHCP4_LEASE_ALLOC [hwtype=1 02:42:ac:77:0b:20], "
            "cid=[no info], tid=0x1: lease 6.6.6.6 has been allocated for 60 seconds",
        ),
    ),
    Holes(
        "kea_leases4",
        ("10.0.0.5,02:42:ac:77:0b:19,,3600,1772445600,1,0,0,{},0,,0",),
        escape=leases_csv,
        imitated=("6.6.6.6,02:42:ac:77:0b:20,,3600,1772445600,1,0,0,mallory,0,,0",),
        header=b"address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,"
        b"hostname,state,user_context,pool_id",
    ),
    # What others write beside the kernel is no packet, whatever it quotes.
    Holes(
        "netfilter",
        (
            "sshd[12]: Invalid user {} from 10.0.0.5",
            "kernel: [1.5] usb 1-1: Product: {}",
            "kernel: [1.5] input: {} as /devices/pci0000:00/usb1/1-1/input/input5",
        ),
        "Mar  2 09:00:00 gw ",
        imitated=(
            "kernel: [12.5] IN=eth0 OUT= SRC=6.6.6.6 DST=6.6.6.6 LEN=60 TTL=52 PROTO=TCP SPT=1 "
            "DPT=22",
        ),
    ),
    Holes(
        "pam",
        (
            "sshd[7]: pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh "
            "ruser= rhost=10.0.0.5  user={}",
            "vsftpd[7]: pam_unix(vsftpd:auth): authentication failure; logname= uid=0 euid=0 "
            "tty=ftp ruser={0} rhost=10.0.0.5  user={0}",
            "rshd[7]: pam_unix(rsh:auth): authentication failure; logname= uid=0 euid=0 tty=rsh "
            "ruser={} rhost=10.0.0.5  user=x",
            "sshd[7]: pam_unix(sshd:auth): check pass; user unknown {}",
        ),
        "Mar  2 09:00:00 b1 ",
        imitated=(
            "pam_unix(sshd:session): session opened for user mallory(uid=0) by (uid=0)",
            "pam_unix(sshd:auth): authentication failure; logname=mallory uid=0 euid=0 tty=ssh "
            "ruser=mallory rhost=6.6.6.6  user=mallory",
        ),
    ),
    Holes(
        "sudo",
        (
            "x : command not allowed ; TTY=pts/0 ; PWD=/tmp/{} ; USER=root ; COMMAND=/bin/sh",
            "x : TTY=pts/0 ; PWD=/tmp ; USER=nobody ; COMMAND=/bin/echo {}",
            "x : 3 incorrect password attempts ; TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/x/{}",
        ),
        "Mar  2 09:00:00 b1 sudo: ",
        imitated=(
            "mallory : TTY=pts/0 ; PWD=/tmp ; USER=mallory ; COMMAND=/bin/sh",
            "pam_unix(sudo:session): session opened for user mallory(uid=0) by (uid=0)",
        ),
    ),
    Holes("syslog", SSHD.lines, SSHD.before, plain, SSHD.imitated),
    Holes(
        "syslog",
        ("login refused for {} (10.0.0.5)",),
        STAMP + "myapp 7 - - ",
        imitated=(*SSHD.imitated, *_DHCP),
    ),
    Holes(
        "windows_dhcp",
        ("10,03/02/26,09:00:00,Assign,10.0.0.5,{},0242AC770B19,,7,0,,,,0x4D53,MSFT 5.0,,,,0",),
        escape=lambda text: text.replace(",", "."),
        imitated=("10,03/02/26,09:00:00,Assign,6.6.6.6,mallory,0242AC770B20,,7,0,,,,,,,,,0",),
    ),
    Holes(
        "windows_xml",
        tuple(
            _WINDOWS + f"<Data Name='TargetUserName'>{user}</Data><Data Name='TargetDomainName'>D"
            f"</Data><Data Name='Status'>0xc000006d</Data><Data Name='LogonType'>3</Data><Data "
            f"Name='WorkstationName'>{station}</Data><Data Name='IpAddress'>10.0.0.5</Data><Data "
            "Name='IpPort'>1</Data></EventData></Event>"
            for user, station in (("{}", "w"), ("x", "{}"))
        ),
        escape=element,
        imitated=(
            "</Data><Data Name='IpAddress'>6.6.6.6</Data><Data Name='TargetUserName'>mallory",
            "Account Name:\tmallory\r\nSource Network Address:\t6.6.6.6\r\n",
        ),
    ),
    Holes(
        "zeek",
        tuple(
            f"1772442000.5\tC1\t10.0.0.5\t5\t10.0.0.9\t80\tGET\t{host}\t/{path}\t{agent}\t403\t{user}"
            for host, path, agent, user in (
                ("{}", "", "x", "-"),
                ("h", "{}", "x", "-"),
                ("h", "", "{}", "-"),
                ("h", "", "x", "{}"),
            )
        ),
        escape=tabs,
        imitated=(
            "h\t/\tx\t200\tmallory\n1772442000.5\tC2\t6.6.6.6\t5\t6.6.6.6\t80\tGET\th\t/\tx\t200\tx".replace(
                "\n", " "
            ),
        ),
        header=_ZEEK,
    ),
)
