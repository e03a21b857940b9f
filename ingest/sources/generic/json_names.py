"""Names under which products write the common fields of an event, the likeliest first.

Without case and separators, as all names in `field_lookup`: of ECS, CEF, OpenTelemetry, GELF,
journald and the loggers of common languages.
"""

from __future__ import annotations

TIME = (
    *(
        "timestamp",
        "time",
        "ts",
        "eventtime",
        "eventtimestamp",
        "datetime",
        "date",
        "timegenerated",
    ),
    *("timecreated", "timestampms", "timems", "epochms", "createdat", "created", "createtime"),
    *("eventcreated", "eventstart", "published", "occurredat", "logtime", "logtimestamp"),
    *("timeiso8601", "isotimestamp", "isotime", "utctime", "utctimestamp", "asctime", "unixtime"),
    *("epoch", "epochtime", "dt", "t", "starttime", "start", "devicetime", "rt", "eventdate"),
    *(
        "recordtimestamp",
        "requesttime",
        "receivedat",
        "ingesttime",
        "timereceived",
        "eventdatetime",
    ),
    *("realtimetimestamp", "sourcerealtimetimestamp", "activitydatetime", "creationtime", "timedt"),
    "devicereceipttime",
)
"""Names of the time, the likeliest first: without case and separators, as all names here."""
SOURCE_IP = (
    *("srcip", "sourceip", "clientip", "sourceaddress", "srcaddr", "saddr", "srcaddress"),
    *("sourceipaddress", "srcipaddr", "remoteip", "remoteaddr", "remoteaddress", "remotehost"),
    *("clientaddress", "clientaddr", "callerip", "calleripaddress", "peerip", "peeraddress"),
    *(
        "srcendpointip",
        "idorigh",
        "cip",
        "httprequestremoteip",
        "requestclientip",
        "networkclientip",
    ),
    *("clientipaddress", "ipaddress", "actoripaddress", "useripaddress", "ipaddr", "ip", "client"),
    *("src", "source", "remote", "peer", "origin"),
    # OpenTelemetry's names of who is at the other end, and its names before.
    *("networkpeeraddress", "netpeerip", "netsockpeeraddr", "httpclientip"),
)
TARGET_IP = (
    *("dstip", "destinationip", "destip", "destinationaddress", "dstaddr", "daddr", "dstaddress"),
    *("destinationipaddress", "destaddr", "destaddress", "targetip", "serverip", "serveraddress"),
    *(
        "dstendpointip",
        "idresph",
        "sip",
        "networkdestinationip",
        "dst",
        "dest",
        "destination",
        "target",
    ),
    *("networklocaladdress", "nethostip", "netsockhostaddr"),
)
SOURCE_PORT = (
    *("srcport", "sourceport", "clientport", "spt", "sport", "remoteport", "idorigp"),
    *("networkpeerport", "netpeerport", "netsockpeerport"),
)
TARGET_PORT = (
    *("dstport", "destinationport", "destport", "dpt", "dport", "serverport", "idrespp"),
    *("networklocalport", "nethostport", "netsockhostport"),
)
SOURCE_MAC = ("srcmac", "sourcemac", "clientmac", "smac", "mac", "macaddress", "sourcemacaddress")
TARGET_MAC = ("dstmac", "destinationmac", "destmac", "dmac", "destinationmacaddress")
SOURCE_HOST = ("srchost", "sourcehost", "sourcehostname", "sourcedomain", "clienthostname", "shost")
TARGET_HOST = ("dsthost", "destinationhost", "destinationhostname", "destinationdomain", "dhost")
SOURCE_NAME = ("sourceaddress", "clientaddress")
TARGET_NAME = ("destinationaddress", "serveraddress", "nethostname")
"""Names that hold an address or a host's name."""
USER = (
    *("username", "user", "usr", "accountname", "account", "login", "loginname", "userlogin"),
    *("principal", "principalname", "userprincipalname", "suser", "targetusername", "usrname"),
    *(
        "subjectusername",
        "srcuser",
        "actorname",
        "actorusername",
        "actor",
        "identity",
        "useridname",
    ),
    *("enduserid", "sourceusername", "duser", "destinationusername"),
)
USER_UID = ("userid", "uid", "useruid", "accountid", "actorid", "usersid", "sid")
USER_MAIL = ("useremail", "email", "emailaddress", "useremailaddress", "actoremail")
HOST = (
    *("hostname", "hosthostname", "host", "computer", "computername", "devicehostname"),
    *("agenthostname", "nodename", "node", "servername", "machine", "machinename", "logsource"),
    *("devicename", "fqdn", "dvchost", "dvc", "sysloghostname", "instance", "beathostname"),
)
MESSAGE = (
    *("message", "msg", "log", "shortmessage", "fullmessage", "eventoriginal", "text"),
    *("description", "logmessage", "rawmessage", "eventmessage", "body", "summary", "raw", "line"),
)
LEVEL = (
    *("level", "loglevel", "severity", "levelname", "severitytext", "severitylabel", "lvl", "sev"),
    *(
        "severitylevel",
        "syslogseverity",
        "severityname",
        "sysloglevel",
        "priority",
        "eventseverity",
    ),
    *("logsyslogseverityname", "loglevelname", "syslogseverityname", "criticality", "risklevel"),
)
PROGRAM = (
    *("program", "programname", "appname", "application", "app", "logger", "loggername"),
    *("processname", "syslogidentifier", "ident", "servicename", "service", "component", "tag"),
    *("containername", "kubernetescontainername", "eventprovider", "process"),
)
PID = ("pid", "processid", "processpid", "procid", "syslogpid")
COMMAND = ("processcommandline", "commandline", "cmdline", "processcommand")
EXECUTABLE = ("processexecutable", "processpath", "executable", "exe", "exepath")
EVENT_CODE = (
    "eventcode",
    "eventid",
    "eventtype",
    "eventname",
    "eventaction",
    "action",
    *("signatureid", "deviceeventclassid"),
)
EVENT_UID = ("uuid", "eventuuid", "messageid", "requestid", "traceid", "id", "recordid", "logid")
OUTCOME = (
    "eventoutcome",
    "outcome",
    "result",
    "status",
    "success",
    "eventresult",
    "categoryoutcome",
)
