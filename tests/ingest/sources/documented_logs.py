"""Lines of appliances and systems in the forms that their documents show, for these tests."""

from __future__ import annotations

import json
from typing import Any

from tests.ingest.sources.documented_records import IP, USER, Sample, js

MD5 = "44d88612fea8a8f36de82e1278abb02f"
ASSUMED = "assumed_zone"

# Columns of the template for JSON of 2019; Cloud NSS's of 2024 has more.
ZIA_WEB: dict[str, Any] = {
    "datetime": "2026-03-02 09:00:00",
    "reason": "Allowed",
    "event_id": "6769609605536694273",
    "protocol": "HTTPS",
    "action": "Allowed",
    "transactionsize": "14488",
    "responsesize": "13800",
    "requestsize": "688",
    "urlcategory": "Professional Services",
    "serverip": IP,
    "clienttranstime": "171",
    "requestmethod": "GET",
    "refererURL": "example.com/start",
    "useragent": "curl/8",
    "product": "NSS",
    "location": "Road Warrior",
    "ClientIP": "10.0.0.5",
    "status": "200",
    "user": USER,
    "url": "h.example/a?b=c",
    "vendor": "Zscaler",
    "hostname": "h.example",
    "clientpublicIP": "198.51.100.7",
    "threatcategory": "None",
    "threatname": "None",
    "filetype": "None",
    "appname": "General Browsing",
    "pagerisk": "0",
    "department": "Finance",
    "bamd5": "None",
}
ZIA_FW: dict[str, Any] = {
    "datetime": "Mon Mar  2 09:00:00 2026",
    "user": USER,
    "department": "Finance",
    "locationname": "Berlin",
    "cdport": "22",
    "csport": "51234",
    "sdport": "22",
    "ssport": "0",
    "csip": "10.0.0.5",
    "cdip": IP,
    "ssip": "0.0.0.0",
    "sdip": IP,
    "tsip": "198.51.100.7",
    "tuntype": "GRE",
    "action": "Drop",
    "dnat": "No",
    "stateful": "Yes",
    "aggregate": "No",
    "nwsvc": "SSH",
    "nwapp": "ssh",
    "proto": "TCP",
    "destcountry": "Germany",
    "rulelabel": "Deny SSH",
    "inbytes": "0",
    "outbytes": "70",
    "duration": "0",
    "durationms": "1",
    "numsessions": "1",
    "threatcat": "None",
    "threatname": "None",
}
ZIA_CEF = (
    "Mar 02 09:00:00 zscaler-nss CEF:0|Zscaler|NSSWeblog|5.7|{action}|{reason}|3| act={action} "
    "reason={reason} app=HTTPS dhost=h.example dst=203.0.113.9 src=198.51.100.7 "
    "sourceTranslatedAddress=10.0.0.5 in=13800 out=688 request=h.example/a?b\\=c "
    "requestContext=None outcome=403 requestClientApplication={agent} requestMethod=POST "
    "suser=ann@example.com spriv=Berlin externalId=67 fileType=None "
    "destinationServiceName=General Browsing cat=News "
    "deviceDirection=1 cn1=7 cn1Label=riskscore cs1=Finance cs1Label=dept cs2=News cs2Label=urlcat "
    "cs3={threat} cs3Label=malwareclass cs4={threat} cs4Label=malwarecat cs5={threat} "
    "cs5Label=threatname cs6=md5hash cs6Label=" + MD5 + " rulelabel=Block news ruletype=UrlCat"
)
ZIA_FW_CEF = (
    "Mar 02 09:00:00 zscaler-nss-fw CEF:0|Zscaler|NSSFWlog|5.7|Allow|Web|3| act=Allow "
    "suser=ann@example.com src=10.0.0.5 spt=51234 dst=203.0.113.9 dpt=443 "
    "deviceTranslatedAddress=0.0.0.0 deviceTranslatedPort=0 proto=TCP tunnelType=GRE dnat=No "
    "stateful=Yes spriv=Berlin reason=Web in=500 out=70 rt=Mar 02 2026 09:00:00 deviceDirection=1 "
    "cs1=Finance cs1Label=dept cs2=HTTPS cs2Label=nwService cs3=Google cs3Label=nwApp cs4=Yes "
    "cs4Label=aggregated cs6=None cs6label=threatname cn1=2500 cn1Label=durationms cn2=3 "
    "cn2Label=numsessions destCountry=Germany avgduration=800"
)
FAC = (
    'category="Event" subcategory="{}" typeid={} level="information" user="{}" nas="{}" {}'
    'action="{}" status="{}" '
)


def mac(path: str, text: str) -> tuple[str, ...]:
    """A message in the styles ndjson, syslog and the default."""
    name, category = path.rpartition("/")[2], "[com.apple.x:auth]"
    return (
        js(
            traceID=492824654442528,
            eventMessage=text,
            eventType="logEvent",
            source=None,
            formatString="%{public}s",
            userID=0,
            subsystem="com.apple.x",
            category="auth",
            threadID=500795,
            processImagePath=path,
            senderImagePath=path,
            timestamp="2026-03-02 10:00:00.761747+0100",
            machTimestamp=3208860279380,
            messageType="Default",
            processID=50,
            timezoneName="",
        ),
        f"2026-03-02 10:00:00.761747+0100  localhost {name}[50]: (libx.dylib) {category} {text}",
        f"2026-03-02 10:00:00.761747+0100 0x49f823   Default     0x6dbf23             50     0    "
        f"{name}: {category} {text}",
    )


def zia(kind: str, **fields: Any) -> str:
    return js(sourcetype=f"zscalernss-{kind}", event=fields)


SAMPLES = [
    # -- Zscaler: NSS and Cloud NSS in JSON, tabs, CEF 5.0 and 5.7; web, firewall, DNS, others
    Sample(
        "zscaler",
        zia("web", **ZIA_WEB),
        (4002, 3, 1, "10.0.0.5", IP, USER),
        {"http_request.url.hostname": "h.example", "http_request.url.query_string": "b=c",
         "http_request.url.url_string": "https://h.example/a?b=c", "http_response.code": 200,
         "traffic.bytes_out": 688, "duration": 171, "action_id": 1, "app_name": "General Browsing"},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        js(version="v11", sourcetype="zscalernss-web", event=ZIA_WEB | {
            "datetime": "Mon Mar 2 09:00:00 2026", "epochtime": "1772442000", "action": "Blocked",
            "reason": "Virus", "status": "403", "threatname": "Win32.Trojan.X", "bamd5": MD5,
            "threatcategory": "Trojan", "threatseverity": "Critical (90-100)"}),
        (2004, 1, None, "10.0.0.5", IP, USER),
        {"finding_info.title": "Win32.Trojan.X", "severity_id": 5, "action_id": 2,
         "http_request.url.path": "/a"},
    ),
    Sample(
        "zscaler",
        js(time="2026-03-02 09:00:00", tz="GMT", login="CORP\\ann", cip="10.0.0.5", sip=IP,
           reqmethod="CONNECT", url="h.example:443", proto="SSL", action="Blocked", respcode="NA",
           urlcat="Gambling", ua="Mozilla/5.0", rulelabel="No games", devicehostname="pc1"),
        (4002, 1, 2, "10.0.0.5", IP, "ann"),
        {"http_request.url.port": 443, "firewall_rule.name": "No games",
         "src_endpoint.hostname": "pc1"},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        "2026-03-02 09:00:00\treason=Allowed\t" + "\t".join(
            f"{key}={value}" for key, value in ZIA_WEB.items() if key not in ("datetime", "reason")
        ),
        (4002, 3, 1, "10.0.0.5", IP, USER),
        {"http_request.url.url_string": "https://h.example/a?b=c", "action_id": 1},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        ZIA_CEF.format(action="Blocked", reason="Not allowed", agent="curl/8", threat="None"),
        (4002, 6, 2, "10.0.0.5", IP, USER),
        {"http_request.url.url_string": "https://h.example/a?b=c", "status_code": "403",
         "file.hashes": [{"algorithm": "MD5", "value": MD5}], "status_detail": "Not allowed"},
        "assumed_year",
    ),
    Sample(
        "zscaler",
        ZIA_CEF.format(action="Blocked", reason="Virus", agent="curl/8", threat="Eicar"),
        (2004, 1, None, "10.0.0.5", IP, USER),
        {"finding_info.title": "Eicar", "http_request.http_method": "POST"},
        "assumed_year",
    ),
    Sample(
        "zscaler",
        "Mar 02 09:00:00 zscaler-nss CEF:0|Zscaler|NSSWeblog|5.0|Allowed|None|3|act=Allowed "
        "app=HTTP cat=News dhost=h.example dst=203.0.113.9 src=10.0.0.5 in=1 outcome=200 out=2 "
        "request=h.example/ rt=Mar 02 2026 09:00:00 sourceTranslatedAddress=198.51.100.7 "
        "requestClientApplication=curl/8 requestMethod=GET suser=Berlin spriv=Berlin",
        (4002, 3, 1, "10.0.0.5", IP, None),
        {"http_request.url.url_string": "http://h.example/"},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        zia("fw", **ZIA_FW),
        (4001, 5, 2, "10.0.0.5", IP, USER),
        {"dst_endpoint.port": 22, "connection_info.protocol_num": 6, "traffic.bytes_out": 70,
         "firewall_rule.name": "Deny SSH", "action_id": 2, "duration": 1},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        zia("fw", **ZIA_FW | {"action": "Allow due to insufficient app data", "epochtime":
            "1772442000", "proto": "UDP"}),
        (4001, 2, 1, "10.0.0.5", IP, USER),
        {"action_id": 1},
    ),
    Sample(
        "zscaler",
        ZIA_FW_CEF,
        (4001, 6, 1, "10.0.0.5", IP, USER),
        {"duration": 2500, "traffic.bytes_in": 500, "app_name": "Google",
         "connection_info.direction_id": 2, "firewall_rule.name": "Web"},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        zia("dns", datetime="2026-03-02 09:00:00", user=USER, location="Berlin", clt_sip="10.0.0.5",
            reqaction="Allow", resaction="Allow", dns_reqtype="A record", dns_req="evil.example",
            dns_resp="NXDOMAIN", srv_dip=IP, srv_dport="53", durationms="3"),
        (4003, 2, 1, "10.0.0.5", IP, USER),
        {"query.hostname": "evil.example", "rcode_id": 3, "action_id": 1},
        ASSUMED,
    ),
    Sample(
        "zscaler",
        zia("tunnel", datetime="2026-03-02 09:00:00", tunnelstatus="UP", sourceip="10.0.0.5"),
        (0, 0, None, None, None, None),
        {},
        ASSUMED,
    ),
    # -- FortiAuthenticator 6: syslog; the log as it is downloaded
    *(
        Sample("fortiauthenticator", f"<134>1 2026-03-02T09:00:00Z fac1 db 31013 - - {text}",
               expected, more)
        for text, expected, more in (
            (FAC.format("Authentication", 20001, "ann", "10.0.0.1", 'userip="203.0.113.9" ',
                        "Authentication", "Failed")
             + "Remote RADIUS user authentication with invalid token",
             (3002, 1, 2, IP, "10.0.0.1", "ann"),
             {"status_detail": "invalid token", "auth_protocol": "RADIUS",
              "metadata.event_code": "20001"}),
            (FAC.format("Authentication", 20299, "ann", "10.0.0.1", "", "Authentication",
                        "Pending") + "Remote RADIUS user authentication partially done",
             (3002, 1, 0, None, "10.0.0.1", "ann"), {}),
            (FAC.format("Authentication", 20102, "CORP\\ann", "FAC_GUI:13", 'userip="" ',
                        "Authentication", "Failed")
             + "Remote LDAP user authentication from 203.0.113.9  with no token failed: "
               "invalid password.",
             (3002, 1, 2, IP, None, "ann"), {"status_detail": "invalid password"}),
            (FAC.format("Authentication", 20701, "ann", "10.0.0.1", 'userip="203.0.113.9" ',
                        "Login", "Success") + "[ann] has successfully logged in OAuth portal",
             (3002, 1, 1, IP, "10.0.0.1", "ann"), {}),
            (FAC.format("Authentication", 20003, "ann", "", "", "Logout", "Success") + "Logged out",
             (3002, 2, 1, None, None, "ann"), {}),
            (FAC.format("Admin Configuration", 10001, "admin", "203.0.113.9", "", "", "")
             + "Added Remote LDAP User: bob",
             (3001, 1, 1, None, None, "bob"), {"actor.user.name": "admin"}),
            (FAC.format("Admin Configuration", 10002, "admin", "", "", "", "")
             + "Edited RADIUS Client: wlan1 (changed fields: secret)",
             (6003, 3, 1, None, None, "admin"), {"api.operation": "Edited RADIUS Client"}),
            (FAC.format("System", 30303, "", "", "", "", "") + "Retrieved 25 user(s)",
             (0, 0, None, None, None, None), {}),
        )
    ),
    Sample(
        "fortiauthenticator",
        'date=2026-03-02 time=09:00:00 logid=20102 cat=Event subcat=Authentication level=info '
        'nas="10.0.0.1" action="Authentication" status="Failed" msg="User "ann" failed: locked." '
        'user="ann" requestid=',
        (3002, 1, 2, None, "10.0.0.1", "ann"),
        {"status_detail": "locked"},
        ASSUMED,
    ),
    # -- EfficientIP SOLIDserver 7 and 8: dhcpd, named, DNS Guardian
    *(
        Sample("efficientip", f"<134>1 2026-03-02T09:00:00Z ddi1 {program} 7 - - {text}", expected,
               more)
        for program, text, expected, more in (
            ("dhcpd", "DHCPACK on 10.0.0.5 to 02:42:ac:77:0b:10 via vmx1 [691200]",
             (4004, 5, 1, "10.0.0.5", None, None), {"lease_dur": 691200}),
            ("dhcpd", "DHCPACK on 10.0.0.5 to 02:42:ac:77:0b:10 (pc1) via 10.0.0.1",
             (4004, 5, 1, "10.0.0.5", None, None), {"src_endpoint.hostname": "pc1"}),
            ("dhcpd", "DHCPOFFER on 10.0.0.5 to 02:42:ac:77:0b:10 (pc1) via vmx1 [600]",
             (4004, 2, 1, "10.0.0.5", None, None), {}),
            ("dhcpd", "DHCPDISCOVER from 02:42:ac:77:0b:10 via 10.0.0.1: unknown network segment",
             (4004, 1, 2, None, None, None), {"src_endpoint.mac": "02:42:ac:77:0b:10"}),
            ("dhcpd", "DHCPRELEASE of 10.0.0.5 from 02:42:ac:77:0b:10 (pc1) via vmx1 (found)",
             (4004, 7, 1, "10.0.0.5", None, None), {}),
            ("named", "client 10.0.0.5#34229: query: h.example IN A (10.0.0.1)",
             (4003, 1, None, "10.0.0.5", "10.0.0.1", None), {"query.hostname": "h.example"}),
            ("named", "client @0x7f01 10.0.0.5#34229 (h.example): query: h.example IN A +E(0)TDC "
                      "(10.0.0.1)",
             (4003, 1, None, "10.0.0.5", "10.0.0.1", None), {"query.type": "A"}),
            ("named", "client 10.0.0.5#34229 (h.example.): answer: h.example. IN A (10.0.0.1) -> "
                      "NOERROR 474 CNAME g.example. 174 A 203.0.113.9",
             (4003, 2, 1, "10.0.0.5", "10.0.0.1", None),
             {"answers": [{"ttl": 474, "type": "CNAME", "rdata": "g.example."},
                          {"ttl": 174, "type": "A", "rdata": IP}], "rcode_id": 0}),
            ("named", "client 10.0.0.5#34229: answer: h.example IN AAAA + (10.0.0.1) -> NXDOMAIN",
             (4003, 2, 2, "10.0.0.5", "10.0.0.1", None), {"rcode_id": 3}),
            ("named", "ARMING trigger on 10.0.0.5.02:42:ac:77:0b:10.ei6pt (action:QUARANTINE) "
                      "(Suspicious Behavior)",
             (2004, 1, None, "10.0.0.5", None, None),
             {"finding_info.title": "Suspicious Behavior", "disposition_id": 3,
              "src_endpoint.mac": "02:42:ac:77:0b:10"}),
            ("named", "DISARMING trigger on 10.0.0.5 (action:QUARANTINE) (Suspicious Behavior)",
             (2004, 3, None, "10.0.0.5", None, None), {}),
            ("named", "List Matched 10.0.0.5#46937: query: evil.example IN A (10.0.0.1) "
                      "{DTP,internal} [t1]",
             (4003, 1, None, "10.0.0.5", "10.0.0.1", None),
             {"firewall_rule.name": "DTP,internal"}),
            ("ipmserver", "started", (0, 0, None, None, None, None), {}),
        )
    ),
    # -- macOS 10.12 to 15: the styles of `log show`
    *(
        Sample("macos_unified_log", raw, expected, more)
        for program, text, expected, more in (
            ("/usr/sbin/sshd", "Accepted publickey for ann from 203.0.113.9 port 51 ssh2: RSA "
                               "SHA256:abc",
             (3002, 1, 1, IP, None, "ann"), {"metadata.product.name": "OpenSSH"}),
            ("/usr/libexec/sshd-session", "Failed password for invalid user x from 203.0.113.9 "
                                          "port 51 ssh2",
             (3002, 1, 2, IP, None, "x"), {}),
            ("/usr/bin/sudo", "ann : TTY=ttys000 ; PWD=/Users/ann ; USER=root ; COMMAND=/bin/ls",
             (1007, 1, 1, None, None, "ann"), {"process.cmd_line": "/bin/ls"}),
            ("/usr/libexec/authd", "Succeeded authorizing right 'system.preferences' by client "
                                   "'/System/x.appex' [37316] for authorization created by "
                                   "'/System/y.appex' [37315] (2,0) (engine 2091)",
             (3003, 1, 1, None, None, None),
             {"privileges": ["system.preferences"], "actor.process.pid": 37316}),
            ("/usr/libexec/authd", "Failed to authorize right 'system.login.console' by client "
                                   "'/x/loginwindow' [9] (engine 1)",
             (3003, 1, 2, None, None, None), {}),
            ("/usr/libexec/authd", "UID 501 authenticated as user ann (UID 501) for right "
                                   "'system.preferences'",
             (3002, 1, 1, None, None, "ann"), {"user.uid": "501"}),
            ("/usr/libexec/opendirectoryd", 'Authentication failed for "ann" (21CD598F-85AA) - '
                                            "wrong password",
             (3002, 1, 2, None, None, "ann"), {"status_detail": "wrong password"}),
            ("/usr/libexec/opendirectoryd", "Authentication failed for <private>: "
                                            "ODErrorCredentialsInvalid",
             (3002, 1, 2, None, None, None), {}),
            ("/x/authorizationhost", "Failed to authenticate user <ann> (tDirStatus: -14090).",
             (3002, 1, 2, None, None, "ann"), {"status_detail": "tDirStatus: -14090"}),
            ("/x/loginwindow", "USER_PROCESS: 94 console", (3002, 1, 1, None, None, None), {}),
            ("/x/loginwindow", "DEAD_PROCESS: 94 console", (3002, 2, 1, None, None, None), {}),
            ("/x/screensharingd", "Authentication: FAILED :: User Name: ann :: Viewer Address: "
                                  "203.0.113.9 :: Type: DH",
             (3002, 1, 2, IP, None, "ann"), {"auth_method": "DH"}),
            ("/usr/sbin/wifid", "EAP: eapState=2", (0, 0, None, None, None, None), {}),
        )
        for raw in mac(program, text)
    ),
    Sample(
        "macos_unified_log",
        "2026-03-02 09:00:00.123 E  opendirectoryd[123:456] [com.apple.opendirectoryd:auth] "
        'Authentication failed for "ann" (21CD598F) - wrong password',
        (3002, 1, 2, None, None, "ann"),
        {},
        ASSUMED,
    ),
]  # fmt: skip


def array(*records: str) -> bytes:
    """Records as Cloud NSS sends them with its switch for arrays."""
    return json.dumps([json.loads(record) for record in records]).encode()
