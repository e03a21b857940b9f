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
]  # fmt: skip


def array(*records: str) -> bytes:
    """Records as Cloud NSS sends them with its switch for arrays."""
    return json.dumps([json.loads(record) for record in records]).encode()
