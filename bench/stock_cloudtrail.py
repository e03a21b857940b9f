"""CloudTrail to silver.event as one would with stock Spark: one `from_json`, column expressions.

What AWS fills with anything at all (`requestParameters` and the like) is read as text, which
is quicker than a map or a variant and is what `unmapped` wants in the end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench.stock import (
    MALFORMED,
    classified,
    identity,
    is_address,
    left,
    lookup,
    observable,
    observables,
    product,
    silver,
    status_of,
    struct,
)
from ingest.sources.aws.cloudtrail_event import HIDDEN, VERBS

NOT_DONE = (
    "CloudTrail: refuse a second object or bytes after the first, keys that stand twice or bad "
    "UTF-8; unpack files, envelopes and gzip; logins, insights and digests; addresses in one "
    "spelling; unmapped fields that its schema does not name"
)
_ISSUER = "struct<type:string,principalId:string,arn:string,accountId:string,userName:string>"
_SESSION = (
    f"struct<sessionIssuer:{_ISSUER},webIdFederationData:string,"
    "attributes:struct<creationDate:string,mfaAuthenticated:string>>"
)
_IDENTITY = (
    "struct<type:string,principalId:string,arn:string,accountId:string,accessKeyId:string,"
    f"userName:string,invokedBy:string,identityProvider:string,sessionContext:{_SESSION}>"
)
_READ = (
    f"userIdentity {_IDENTITY}, eventTime string, `@timestamp` string, eventSource string, "
    "eventName string, awsRegion string, sourceIPAddress string, userAgent string, "
    "errorCode string, errorMessage string, requestID string, eventID string, "
    "resources array<struct<accountId:string,type:string,ARN:string>>, apiVersion string, "
    "recipientAccountId string, sharedEventID string, eventCategory string"
)
_LEFT = (
    "eventVersion string, requestParameters string, responseElements string, "
    "additionalEventData string, serviceEventDetails string, readOnly boolean, "
    "eventType string, managementEvent boolean, vpcEndpointId string, tlsDetails string, "
    "sessionCredentialFromConsole string, `@version` string"
)
SCHEMA = f"{_READ}, {_LEFT}, _corrupt string"
LEFT = tuple(field.split()[0].strip("`") for field in _LEFT.split(", "))
ACTIVITIES = {1: "Create", 2: "Read", 3: "Update", 4: "Delete", 99: "Other"}


def events(records: DataFrame) -> DataFrame:
    """Rows of bronze.record as rows of silver.event, dead letters included."""
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    read = records.select(
        "record_id", "source", "mode", "received_at",
        F.from_json(F.col("raw").cast("string"), SCHEMA, how).alias("z"),
    )  # fmt: skip
    reason = F.when(F.col("z._corrupt").isNotNull() | F.col("z").isNull(), F.lit(MALFORMED)).when(
        _z("eventName").isNull() | _z("eventSource").isNull(),
        F.lit("a field that must be there is missing"),
    )
    told = read.withColumn("dead_letter_reason", reason)
    prepared = told.withColumns(_prepared())
    given = _identity() | _class() | _objects()
    return silver(prepared, given)


def _z(name: str) -> Column:
    return F.col(f"z.`{name}`")


def _who(name: str) -> Column:
    return F.col(f"z.userIdentity.{name}")


def _good(value: Column) -> Column:
    return F.when(F.col("good"), value)


def _prepared() -> dict[str, Column]:
    """What several columns need."""
    name = F.coalesce(
        F.nullif(_who("userName"), F.lit(HIDDEN)),
        _who("sessionContext.sessionIssuer.userName"),
        F.when(_who("type") == "Root", "root"),
    )
    verb = F.regexp_extract(_z("eventName"), "^[A-Z][a-z]+", 0)
    named = F.filter(_z("resources"), lambda one: one["ARN"].isNotNull())
    found = F.transform(
        named,
        lambda one: F.struct(
            one["ARN"].alias("uid"),
            F.lit(None).cast("string").alias("name"),
            one["type"].alias("type"),
        ),
    )
    return {
        "good": F.col("dead_letter_reason").isNull(),
        "at": F.coalesce(_z("eventTime"), _z("@timestamp")).try_cast("timestamp"),
        "name": name,
        "known": F.coalesce(name, _who("principalId"), _who("accountId")).isNotNull(),
        "ip": F.when(is_address(_z("sourceIPAddress")), _z("sourceIPAddress")),
        "failed": _z("errorCode").isNotNull() | _z("errorMessage").isNotNull(),
        "activity": F.coalesce(lookup(VERBS, verb), F.when(_z("readOnly"), F.lit(2)), F.lit(99)),
        "touched": F.when(F.size(found) > 0, found),
    }


def _identity() -> dict[str, Column]:
    at = F.col("at")
    quality = F.when(at.isNull(), "received").otherwise("exact")
    return {
        **identity(F.col("good"), F.coalesce(at, F.col("received_at")), quality),
        "src_ip": _good(F.col("ip")),
        "user_name": _good(F.when(F.col("known"), F.col("name"))),
    }


def _class() -> dict[str, Column]:
    good = F.col("good")
    class_uid = F.when(good, 6003).otherwise(0)
    activity = F.when(good, F.col("activity")).otherwise(0)
    names = {0: "Base Event", 6003: "API Activity"}
    return {
        **classified(class_uid, activity, F.when(good, 1).otherwise(0), names),
        "activity_name": lookup(ACTIVITIES, activity),
        **status_of(_good(F.when(F.col("failed"), 2).otherwise(1))),
        "status_code": _good(_z("errorCode")),
        "status_detail": _good(_z("errorMessage")),
    }


def _objects() -> dict[str, Column]:
    return {
        "metadata": _good(
            struct(
                "metadata",
                version=F.lit("1.8.0"),
                product=product("CloudTrail", "AWS"),
                log_name=_z("eventCategory"),
                event_code=_z("eventName"),
                uid=_z("eventID"),
                correlation_uid=_z("sharedEventID"),
            )
        ),
        "src_endpoint": _good(
            F.when(
                _z("sourceIPAddress").isNotNull(),
                struct(
                    "src_endpoint",
                    ip=F.col("ip"),
                    svc_name=F.when(F.col("ip").isNull(), _z("sourceIPAddress")),
                ),
            )
        ),
        "actor": _good(_actor()),
        "cloud": _good(
            struct(
                "cloud",
                provider=F.lit("AWS"),
                region=_z("awsRegion"),
                account=F.when(
                    _z("recipientAccountId").isNotNull(),
                    struct("cloud.account", uid=_z("recipientAccountId")),
                ),
            )
        ),
        "http_request": _good(
            F.when(_z("userAgent").isNotNull(), struct("http_request", user_agent=_z("userAgent")))
        ),
        "api": _good(_api()),
        "resources": _good(F.col("touched")),
        "observables": _good(_observables()),
        "unmapped": _good(_unmapped()),
    }


def _actor() -> Column:
    user = struct(
        "actor.user",
        name=F.col("name"),
        uid=_who("principalId"),
        type=_who("type"),
        account_uid=_who("accountId"),
        credential_uid=_who("accessKeyId"),
    )
    mfa = _who("sessionContext.attributes.mfaAuthenticated")
    return struct(
        "actor",
        user=F.when(F.col("known"), user),
        session=F.when(mfa.isNotNull(), struct("actor.session", is_mfa=mfa == "true")),
        invoked_by=F.coalesce(_who("invokedBy"), F.when(~F.col("known"), _z("eventSource"))),
    )


def _api() -> Column:
    answer = struct("api.response", error=_z("errorCode"), error_message=_z("errorMessage"))
    return struct(
        "api",
        operation=_z("eventName"),
        version=_z("apiVersion"),
        service=struct("api.service", name=_z("eventSource")),
        request=F.when(_z("requestID").isNotNull(), struct("api.request", uid=_z("requestID"))),
        response=F.when(F.col("failed"), answer),
    )


def _observables() -> Column:
    found = observables(
        ("src_endpoint.ip", 2, F.col("ip")),
        ("actor.user.name", 4, F.when(F.col("known"), F.col("name"))),
        ("http_request.user_agent", 16, _z("userAgent")),
        ("actor.user.credential_uid", 19, F.when(F.col("known"), _who("accessKeyId"))),
    )
    touched = F.transform("touched", lambda one: observable("resources[].uid", 10, one["uid"]))
    return F.when(F.col("touched").isNull(), found).otherwise(
        F.concat(F.coalesce(found, F.array()), F.array_distinct(touched))
    )


def _unmapped() -> Column:
    of = F.struct(
        F.when(~F.col("known"), _who("type")).alias("type"),
        _who("arn").alias("arn"),
        _who("sessionContext").alias("sessionContext"),
        _who("identityProvider").alias("identityProvider"),
    )
    accounts = F.transform("z.resources", lambda one: F.struct(one["accountId"].alias("accountId")))
    return left(
        *[_z(name).alias(name) for name in LEFT],
        _z("@timestamp").alias("@timestamp"),
        of.alias("userIdentity"),
        F.when(F.exists(accounts, lambda one: one["accountId"].isNotNull()), accounts).alias(
            "resources"
        ),
    )
