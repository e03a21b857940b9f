"""Holes of daemons, web servers and devices (`tests.ingest.sources.holes`)."""

from __future__ import annotations

from tests.ingest.sources.holes import (
    STAMP,
    Holes,
    apache,
    cef,
    csv,
    nginx,
    no_space,
    percent,
)

SSHD = Holes(
    "sshd",
    (
        "Failed password for invalid user {} from 10.0.0.5 port 4242 ssh2",
        "Failed password for {} from 10.0.0.5 port 4242 ssh2",
        "Failed none for invalid user {} from 10.0.0.5 port 4242 ssh2",
        "Invalid user {} from 10.0.0.5 port 4242",
        "Invalid user {} from 10.0.0.5",
        "Illegal user {} from 10.0.0.5",
        "Connection closed by invalid user {} 10.0.0.5 port 4242 [preauth]",
        "Disconnected from invalid user {} 10.0.0.5 port 4242 [preauth]",
        "Received disconnect from 10.0.0.5 port 4242:11: {} [preauth]",
        "Bad protocol version identification '{}' from 10.0.0.5 port 4242",
        "User {} from 10.0.0.5 not allowed because not listed in AllowUsers",
        "error: maximum authentication attempts exceeded for invalid user {} from 10.0.0.5 port 4 "
        "ssh2 [preauth]",
        "input_userauth_request: invalid user {} [preauth]",
        "Postponed keyboard-interactive for invalid user {} from 10.0.0.5 port 4 ssh2 [preauth]",
        "error: PAM: Authentication failure for illegal user {} from 10.0.0.5",
        "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= "
        "rhost=10.0.0.5  user={}",
        "pam_unix(sshd:auth): check pass; user unknown {}",
    ),
    STAMP + "sshd 7 - - ",
    imitated=("Accepted password for mallory from 6.6.6.6 port 1 ssh2",),
)
WEB = (
    '10.0.0.5 - {} [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1" 401 1 "-" "-"',
    '10.0.0.5 - - [02/Mar/2026:09:00:00 +0000] "GET {} HTTP/1.1" 404 1 "-" "-"',
    '10.0.0.5 - - [02/Mar/2026:09:00:00 +0000] "GET /x HTTP/1.1" 404 1 "{}" "-"',
    '10.0.0.5 - - [02/Mar/2026:09:00:00 +0000] "GET /x HTTP/1.1" 404 1 "-" "{}"',
)
WEB_IMITATED = ('6.6.6.6 - mallory [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"',)
ENDING = ', client: 10.0.0.5, server: s, request: "GET / HTTP/1.1", host: "h"'
DAEMONS = (
    SSHD,
    Holes(
        "dropbear",
        (
            "Bad password attempt for '{}' from 10.0.0.5:4242",
            "Login attempt for nonexistent user '{}' from 10.0.0.5:4242",
            "Exit before auth from <10.0.0.5:4242>: (user '{}', 3 fails): Max auth tries reached",
        ),
        STAMP + "dropbear 7 - - ",
        imitated=("Password auth succeeded for 'mallory' from 6.6.6.6:1",),
    ),
    Holes(
        "dovecot",
        (
            "imap-login: Disconnected (auth failed, 1 attempts in 2 secs): user=<{}>, "
            "method=PLAIN, rip=10.0.0.5, lip=10.0.0.1, TLS, session=<abc>",
            "imap-login: Disconnected: Connection closed (auth failed, 1 attempts in 2 secs): "
            "user=<{}>, method=PLAIN, rip=10.0.0.5, lip=10.0.0.1, session=<abc>",
            "auth: passwd-file({},10.0.0.5,<abc>): unknown user",
            "auth-worker(7): conn unix:auth-worker (uid=1): auth-worker<1>: pam({},10.0.0.5,<a>): "
            "pam_authenticate() failed: Authentication failure",
        ),
        STAMP + "dovecot 7 - - ",
        imitated=(
            "imap-login: Login: user=<mallory>, method=PLAIN, rip=6.6.6.6, lip=6.6.6.6, TLS",
        ),
    ),
    Holes(
        "postfix",
        (
            "NOQUEUE: reject: RCPT from unknown[10.0.0.5]: 554 5.7.1 <{}>: Relay access denied; "
            "from=<a@b.c> to=<d@e.f> proto=ESMTP helo=<x>",
            "NOQUEUE: reject: RCPT from unknown[10.0.0.5]: 554 5.7.1 <d@e.f>: Relay access "
            "denied; from=<{}> to=<d@e.f> proto=ESMTP helo=<x>",
            "NOQUEUE: reject: RCPT from unknown[10.0.0.5]: 554 5.7.1 <d@e.f>: Relay access "
            "denied; from=<a@b.c> to=<d@e.f> proto=ESMTP helo=<{}>",
            "warning: unknown[10.0.0.5]: SASL LOGIN authentication failed: (reason unavailable), "
            "sasl_username={}",
        ),
        STAMP + "postfix/smtpd 7 - - ",
        imitated=(
            "A1B2C3: client=evil[6.6.6.6], sasl_method=LOGIN, sasl_username=mallory",
            "warning: evil[6.6.6.6]: SASL LOGIN authentication failed: x, sasl_username=mallory",
        ),
    ),
    Holes(
        "exim",
        (
            '1wAbCd-0001Ab-9Z <= "{}"@a.b H=(h) [10.0.0.5] P=esmtp S=1 id=x',
            '1wAbCd-0001Ab-9Z <= a@b.c H=(h) [10.0.0.5] P=esmtp SNI="{}" S=1 id=x',
            "1wAbCd-0001Ab-9Z <= a@b.c H=(h) [10.0.0.5] P=esmtp S=1 id={}",
            '1wAbCd-0001Ab-9Z <= a@b.c H=(h) [10.0.0.5] P=esmtp S=1 id=x T="{}" for e@f.g',
            "1wAbCd-0001Ab-9Z ** a@b.c R=r T=t H=mx [10.0.0.5]: SMTP error from remote: 550 {}",
            '1wAbCd-0001Ab-9Z => a@b.c R=r T=t H=mx [10.0.0.5] C="{}" QT=1s',
            'H=(h) [10.0.0.5] F=<"{}"@a.b> rejected RCPT <d@e.f>: no',
            "H=(h) [10.0.0.5] F=<a@b.c> rejected RCPT <{}>: no",
            "H=(h) [10.0.0.5] rejected EHLO or HELO {}: syntactically invalid argument(s)",
            "login authenticator failed for (h) [10.0.0.5]: 535 Incorrect authentication data "
            "(set_id={})",
            'SMTP protocol synchronization error (next input sent too soon): rejected "HELO" '
            'H=[10.0.0.5] next input="{}"',
        ),
        "2026-03-02 09:00:00 ",
        apache,
        (
            "1wAbCd-0001Ab-9Z <= a@b.c H=evil [6.6.6.6] P=esmtpa A=login:mallory S=1 id=x",
            "login authenticator failed for (h) [6.6.6.6]: 535 x (set_id=mallory)",
            "H=(h) [6.6.6.6] A=login:mallory F=<a@b.c> Warning: x",
        ),
    ),
    Holes(
        "courier",
        ("LOGIN FAILED, user={}, ip=[::ffff:10.0.0.5]",),
        STAMP + "imapd 7 - - ",
        imitated=("LOGIN, user=mallory, ip=[::ffff:6.6.6.6], port=[1]",),
    ),
    Holes(
        "courier",
        (
            "error,relay=::ffff:10.0.0.5,from=<{}>,to=<c@d.example>: 550 User unknown.",
            'error,relay=::ffff:10.0.0.5,msg="502 ESMTP command error",cmd: {}',
        ),
        STAMP + "courieresmtpd 7 - - ",
        imitated=('a>: 250 ok,relay=6.6.6.6,msg="535 Authentication failed.",cmd: mallory',),
    ),
    Holes(
        "vsftpd",
        ('[{}] FAIL LOGIN: Client "10.0.0.5"',),
        "Mon Mar  2 09:00:00 2026 [pid 2] ",
        imitated=('[mallory] OK LOGIN: Client "6.6.6.6"',),
    ),
    Holes(
        "proftpd",
        (
            "b1 (10.0.0.5[10.0.0.5]) - USER {}: no such user found from 10.0.0.5 [10.0.0.5] to "
            "10.0.0.1:21",
            "b1 (10.0.0.5[10.0.0.5]) - USER {} (Login failed): Incorrect password",
        ),
        STAMP + "proftpd 7 - - ",
        imitated=("b1 (6.6.6.6[6.6.6.6]) - USER mallory: Login successful.",),
    ),
    Holes(
        "openldap",
        ('conn=1 op=0 BIND dn="{}" method=128', 'conn=1 op=1 SRCH base="{}" scope=2 deref=0'),
        STAMP + "slapd 7 - - ",
        nginx,
        ("conn=1 fd=2 ACCEPT from IP=6.6.6.6:1 (IP=6.6.6.6:389)",),
    ),
    Holes(
        "freeradius",
        (
            "(1) Login incorrect (pap: no): [{}/<via Auth-Type = PAP>] (from client nas port 0 cli "
            "10.0.0.5)",
        ),
        STAMP + "radiusd 7 - - ",
        imitated=("(1) Login OK: [mallory] (from client 6.6.6.6 port 0 cli 6.6.6.6)",),
    ),
    Holes(
        "openvpn",
        (
            "10.0.0.5:1194 VERIFY ERROR: depth=0, error=unable to get certificate: CN={}",
            "10.0.0.5:1194 peer info: IV_GUI_VER={}",
        ),
        STAMP + "openvpn 7 - - ",
        imitated=(
            "6.6.6.6:1194 [mallory] Peer Connection Initiated with [AF_INET]6.6.6.6:1194",
            "mallory/6.6.6.6:1194 MULTI: Learn: 6.6.6.6 -> mallory/6.6.6.6:1194",
        ),
    ),
    Holes(
        "mysql",
        ("Access denied for user '{}'@'10.0.0.5' (using password: YES)",),
        "2026-03-02T09:00:00.000000Z 8 [Note] [MY-010926] [Server] ",
        imitated=("Access denied for user 'mallory'@'6.6.6.6' (using password: YES)",),
    ),
    Holes(
        "dnsmasq",
        ("query[A] {} from 10.0.0.5", "DHCPDISCOVER(eth0) 02:42:ac:77:0b:19 {}"),
        STAMP + "dnsmasq 7 - - ",
        no_space,
        ("query[A] mallory from 6.6.6.6", "DHCPACK(eth0) 6.6.6.6 02:42:ac:77:0b:20 mallory"),
    ),
    Holes(
        "isc_dhcpd",
        (
            "DHCPACK on 10.0.0.5 to 02:42:ac:77:0b:19 ({}) via eth0",
            "DHCPREQUEST for 10.0.0.5 from 02:42:ac:77:0b:19 ({}) via eth0",
            "DHCPOFFER on 10.0.0.5 to 02:42:ac:77:0b:19 ({}) via 10.0.0.1",
        ),
        STAMP + "dhcpd 7 - - ",
        imitated=("DHCPACK on 6.6.6.6 to 02:42:ac:77:0b:20 (mallory) via eth0",),
    ),
    Holes(
        "bind",
        (
            "client @0x7f 10.0.0.5#1234 ({}): query: a.b IN A +E(0)K (10.0.0.1)",
            "client @0x7f 10.0.0.5#1234 (a.b): query: {} IN A +E(0)K (10.0.0.1)",
        ),
        STAMP + "named 7 - - ",
        no_space,
        ("client @0x7f 6.6.6.6#1 (a.b): query: a.b IN A + (6.6.6.6)",),
    ),
    Holes(
        "unbound",
        ("info: 10.0.0.5 {}. A IN",),
        STAMP + "unbound 7 - - ",
        no_space,
        ("info: 6.6.6.6 a.b. A IN NOERROR 0.0 0 1",),
    ),
    Holes("apache", WEB, escape=apache, imitated=WEB_IMITATED),
    Holes("nginx", WEB, escape=nginx, imitated=WEB_IMITATED),
    Holes(
        "apache_error",
        (
            '[client 10.0.0.5:1] AH01617: user {}: authentication failure for "/x": Password '
            "Mismatch",
            "[client 10.0.0.5:1] AH01618: user {} not found: /x",
            "[client 10.0.0.5:1] AH01807: user '{}': authentication failure for \"/x\": password "
            "Mismatch",
            '[client 10.0.0.5:1] AH01631: user ann: authorization failure for "{}": ',
            "[client 10.0.0.5:1] AH00128: File does not exist: /var/www/{}",
            "[client 10.0.0.5:1] AH01630: client denied by server configuration: /x, referer: {}",
        ),
        "[Mon Mar 02 09:00:00.000000 2026] [auth_basic:error] [pid 1:tid 2] ",
        apache,
        (
            '[client 6.6.6.6:1] AH01617: user mallory: authentication failure for "/x": Password '
            "Mismatch",
            '/x": authentication failure for "/x": Password Mismatch',
            '/x": authorization failure for "/x": ',
        ),
    ),
    Holes(
        "nginx_error",
        (
            'user "{}": password mismatch' + ENDING,
            'user "{}" was not found in "/etc/p"' + ENDING,
            'open() "/html/{}" failed (2: No such file or directory)' + ENDING,
            'access forbidden by rule, client: 10.0.0.5, server: s, request: "GET {} HTTP/1.1"',
            "access forbidden by rule" + ENDING + ', referrer: "{}"',
            'client login failed: "no" while in http auth state, client: 10.0.0.5, server: s, '
            'login: "{}"',
        ),
        "2026/03/02 09:00:00 [error] 12#12: *5 ",
        imitated=(
            'user "mallory": password mismatch, client: 6.6.6.6, server: s, request: "GET / '
            'HTTP/1.1", host: "h"',
        ),
    ),
    Holes(
        "haproxy",
        (
            '10.0.0.5:1 [02/Mar/2026:09:00:00.000] fe be/s 1/2/3/4/5 403 1 - - ---- 1/1/1/1/0 0/0 "'
            'GET {} HTTP/1.1"',
            "10.0.0.5:1 [02/Mar/2026:09:00:00.000] fe be/s 1/2/3/4/5 403 1 - - ---- 1/1/1/1/0 0/0 "
            '{{{}}} "GET / HTTP/1.1"',
        ),
        STAMP + "haproxy 7 - - ",
        lambda text: text.replace('"', "#22").replace("{", "#7B").replace("}", "#7D"),
        (
            '6.6.6.6:1 [02/Mar/2026:09:00:00.000] fe be/s 1/2/3/4/5 200 1 - - ---- 1/1/1/1/0 0/0 "'
            'GET / HTTP/1.1"',
        ),
    ),
    Holes(
        "squid",
        (
            "1772442000.123 5 10.0.0.5 TCP_DENIED/403 1 GET http://a/{} - HIER_NONE/- text/html",
            "1772442000.123 5 10.0.0.5 TCP_DENIED/407 1 GET http://a/ {} HIER_NONE/- text/html",
        ),
        escape=percent,
        imitated=(
            "1772442000.123 5 6.6.6.6 TCP_MISS/200 1 GET http://a/ mallory HIER_DIRECT/6.6.6.6 a/b",
        ),
    ),
    Holes(
        "cisco_asa",
        (
            "%ASA-6-113005: AAA user authentication Rejected : reason = AAA failure : server = "
            "10.0.0.9 : user = {} : user IP = 10.0.0.5",
            '%ASA-6-605004: Login denied from 10.0.0.5/1 to inside:10.0.0.1/ssh for user "{}"',
            "%ASA-4-113019: Group = g, Username = {}, IP = 10.0.0.5, Session disconnected. Session "
            "Type: SSL, Duration: 0h:00m:01s, Bytes xmt: 1, Bytes rcv: 2, Reason: User Requested",
            "%ASA-6-716039: Group <g> User <{}> IP <10.0.0.5> Authentication: rejected, Session "
            "Type: WebVPN.",
            "%ASA-6-113015: AAA user authentication Rejected : reason = Invalid password : local "
            "database : user = {} : user IP = 10.0.0.5",
            "%ASA-5-304001: 10.0.0.5 Accessed URL 10.0.0.9:http://a/{}",
        ),
        "Mar  2 2026 09:00:00 fw : ",
        imitated=(
            "%ASA-6-716038: Group <g> User <mallory> IP <6.6.6.6> Authentication: successful",
            "%ASA-6-605005: Login permitted from 6.6.6.6/1 to inside:6.6.6.6/ssh for user "
            '"mallory"',
            "AAA user authentication Successful : local database : user = mallory : user IP = "
            "6.6.6.6",
        ),
    ),
    Holes(
        "fortigate",
        (
            'date=2026-03-02 time=09:00:00 devname="f" devid="d" logid="0100032002" type="event" '
            'subtype="system" level="alert" vd="root" logdesc="Admin login failed" sn="0" '
            'user="{}" ui="https(10.0.0.5)" method="https" srcip=10.0.0.5 dstip=10.0.0.1 '
            'action="login" status="failed" reason="name_invalid" msg="Administrator login failed"',
            'date=2026-03-02 time=09:00:00 devname="f" devid="d" logid="0316013056" type="utm" '
            'subtype="webfilter" eventtype="ftgd_blk" level="warning" vd="root" srcip=10.0.0.5 '
            'srcport=1 dstip=10.0.0.9 dstport=80 proto=6 action="blocked" hostname="a" url="/{}" '
            'agent="x"',
            'date=2026-03-02 time=09:00:00 devname="f" devid="d" logid="0316013056" type="utm" '
            'subtype="webfilter" eventtype="ftgd_blk" level="warning" vd="root" agent="{}" '
            'srcip=10.0.0.5 srcport=1 dstip=10.0.0.9 dstport=80 proto=6 action="blocked"',
        ),
        escape=apache,
        imitated=(
            'x="y" user="mallory" srcip=6.6.6.6 dstip=6.6.6.6 status="success" action="passthru"',
        ),
    ),
    Holes(
        "cef",
        (
            "CEF:0|V|P|1|1|Login failed|5|src=10.0.0.5 suser={} outcome=failure",
            "CEF:0|V|P|1|1|Blocked|5|request=http://a/{} src=10.0.0.5 act=blocked",
            "CEF:0|V|P|1|1|Blocked|5|src=10.0.0.5 act=blocked msg={}",
        ),
        escape=cef,
        imitated=("src=6.6.6.6 dst=6.6.6.6 suser=mallory duser=mallory outcome=success",),
    ),
    Holes(
        "paloalto",
        (
            "1,2026/03/02 09:00:00,001,THREAT,url,2561,2026/03/02 09:00:00,10.0.0.5,10.0.0.9,"
            "0.0.0.0,0.0.0.0,r,,,web-browsing,vsys1,t,u,e1,e2,l,2026/03/02 09:00:00,1,1,1,80,0,0,"
            '0x0,tcp,block-url,"a/{}",(9999),c,informational,client-to-server',
        ),
        escape=csv,
        imitated=('x",(1),6.6.6.6,mallory,allow,6.6.6.6',),
    ),
    Holes(
        "xrdp",
        ("[20260302-09:00:00] [INFO ] AUTHFAIL: user={} ip=10.0.0.5 time=1",),
        imitated=("login was successful for user mallory from 6.6.6.6",),
    ),
    Holes(
        "zscaler",
        (
            "Mar 02 09:00:00 zscaler-nss CEF:0|Zscaler|NSSWeblog|5.7|Blocked|x|3| act=Blocked "
            "app=HTTP dhost=h.example dst=10.0.0.1 src=10.0.0.5 request=h.example/{} outcome=403 "
            "requestClientApplication=curl requestMethod=GET suser=x",
            "Mar 02 09:00:00 zscaler-nss CEF:0|Zscaler|NSSWeblog|5.7|Blocked|x|3| act=Blocked "
            "app=HTTP dhost=h.example dst=10.0.0.1 src=10.0.0.5 request=h.example/ outcome=403 "
            "requestClientApplication={} requestMethod=GET suser=x",
            "2026-03-02 09:00:00\treason=x\taction=Blocked\turlcategory=x\tuseragent={}\t"
            "ClientIP=10.0.0.5\tserverip=10.0.0.1\tuser=x",
        ),
        escape=cef,
        imitated=("act=Allowed suser=mallory src=6.6.6.6 dst=6.6.6.6 user=mallory",),
    ),
    Holes(
        "fortiauthenticator",
        (
            'category="Event" subcategory="Authentication" typeid=20001 user="{}" nas="10.0.0.1" '
            'userip="10.0.0.5" action="Authentication" status="Failed" invalid password',
            'category="Event" subcategory="Authentication" typeid=20001 user="x" nas="10.0.0.1" '
            'userip="10.0.0.5" action="Login" status="Failed" [{}] has failed to log in',
        ),
        STAMP + "db 7 - - ",
        apache,
        ('user="mallory" nas="6.6.6.6" userip="6.6.6.6" action="Login" status="Success" x',),
    ),
    Holes(
        "efficientip",
        (
            "client 10.0.0.5#34229 ({}): answer: a.b. IN A (10.0.0.1) -> NOERROR 1 A 1.2.3.4",
            "client 10.0.0.5#34229 (a.b): query: {} IN A (10.0.0.1)",
            "List Matched 10.0.0.5#46937: query: {} IN A (10.0.0.1) {{DTP,internal}}",
        ),
        STAMP + "named 7 - - ",
        no_space,
        ("client 6.6.6.6#1 (a.b): answer: a.b IN A (6.6.6.6) -> NOERROR 1 A 6.6.6.6",),
    ),
    Holes(
        "efficientip",
        ("DHCPACK on 10.0.0.5 to 02:42:ac:77:0b:19 ({}) via vmx1 [691200]",),
        STAMP + "dhcpd 7 - - ",
        imitated=("DHCPACK on 6.6.6.6 to 02:42:ac:77:0b:20 (mallory) via vmx1 [1]",),
    ),
    Holes(
        "macos_unified_log",
        (
            "sshd[50]: Failed password for invalid user {} from 10.0.0.5 port 4242 ssh2",
            "screensharingd[50]: Authentication: FAILED :: User Name: {} :: Viewer Address: "
            "10.0.0.5 :: Type: DH",
            'opendirectoryd[50]: [com.apple.opendirectoryd:auth] Authentication failed for "{}"',
        ),
        "2026-03-02 10:00:00.761747+0100  localhost ",
        imitated=(
            "sshd[50]: Accepted password for mallory from 6.6.6.6 port 1 ssh2",
            "Authentication: SUCCEEDED :: User Name: mallory :: Viewer Address: 6.6.6.6 :: Type: x",
            "Authentication succeeded for mallory",
        ),
    ),
)
