"""Microsoft Graph's security alerts (`alerts_v2`): what Defender, Entra ID and Purview found.

https://learn.microsoft.com/graph/api/resources/security-alert . The devices, accounts, addresses,
files and processes that an alert is about stand in its `evidence`; of each kind the first is
taken for the event's own, and all stay in `unmapped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import FINDING, UNKNOWN, address, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    inner,
    listed,
    look,
    look_text,
    moment,
    severity_of,
    take_name,
    take_text,
    take_texts,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person
from ingest.sources.shared.firewall import endpoint, file_hashes

_PRODUCT: Mapping[str, str] = {"name": "Microsoft Graph Security", "vendor_name": "Microsoft"}
# As activities of a finding in OCSF: create, update, close.
_STATES = {"new": 1, "inprogress": 2, "resolved": 3}
_MARKS = ("serviceSource", "detectionSource", "providerAlertId", "detectorId")


def _of_kind(evidence: list[Fields], kind: str) -> Iterator[Fields]:
    for each in evidence:
        type_name = look_text(each, "@odata.type")
        if type_name and type_name.lower().endswith(kind.lower()):
            yield each


def _account(evidence: list[Fields]) -> Fields | None:
    """The first account; evidence of processes and mailboxes names one as well."""
    holders = [inner(each, "userAccount") for each in _of_kind(evidence, "userEvidence")]
    holders += [inner(each, "userAccount") for each in evidence]
    for account in filter(None, holders):
        name = look_text(account, "userPrincipalName") or look_text(account, "accountName")
        uid = look_text(account, "azureAdUserId") or look_text(account, "userSid")
        domain = look_text(account, "domainName")
        if name or uid:
            return person(name, uid, look_text(account, "displayName"), domain=domain)
    return None


def _device(evidence: list[Fields]) -> Fields | None:
    for each in _of_kind(evidence, "deviceEvidence"):
        name = look_text(each, "deviceDnsName") or look_text(each, "hostName")
        uid = look_text(each, "mdeDeviceId") or look_text(each, "azureAdDeviceId")
        ip = look_text(each, "lastIpAddress")
        leaves = kept(hostname=name, uid=uid, ip=address(ip) if ip else None)
        if leaves:
            return leaves | {"type_id": UNKNOWN}
    return None


def _source(evidence: list[Fields]) -> Fields | None:
    for each in _of_kind(evidence, "ipEvidence"):
        roles = look(each, "roles")
        # An address that the alert calls a destination is not where it came from.
        aimed = type(roles) is list and {"destination", "attacked"} & {
            role.lower() for role in roles if type(role) is str
        }
        ip = look_text(each, "ipAddress")
        if ip and not aimed:
            country = look_text(each, "countryLetterCode")
            return endpoint(ip=address(ip), country=country)
    return None


def _hashes(details: Fields) -> list[dict[str, str]]:
    return file_hashes(look_text(details, name) for name in ("sha256", "sha1", "md5"))


def _process(evidence: list[Fields]) -> Fields | None:
    """The first process with a command line or a number."""
    for each in _of_kind(evidence, "processEvidence"):
        image, number = inner(each, "imageFile"), look(each, "processId")
        folder, name = look_text(image, "filePath"), look_text(image, "fileName")
        process: Fields = kept(
            pid=number if type(number) is int and 0 <= number < 2**31 else None,
            cmd_line=look_text(each, "processCommandLine"),
        )
        if process:
            # OCSF wants a number or another id of a process.
            process = process if "pid" in process else process | {"uid": "unknown"}
            return process | kept(name=name, path=folder, hashes=_hashes(image) or None)
    return None


def _file(evidence: list[Fields]) -> Fields | None:
    for each in _of_kind(evidence, "fileEvidence"):
        details = inner(each, "fileDetails")
        name, hashes = look_text(details, "fileName"), _hashes(details)
        if name:
            return kept(name=name, path=look_text(details, "filePath"), hashes=hashes or None)
    return None


def _read(fields: Fields, context: Context) -> Event:
    title, uid = take_text(fields, "title"), take_name(fields, "id")
    if title is None and uid is None:
        raise Unreadable("neither 'title' nor 'id' in the alert")
    seen = moment(fields, context, "firstActivityDateTime")
    last = moment(fields, context, "lastActivityDateTime")
    made = moment(fields, context, "createdDateTime")
    stamp = take_time(fields, context, ("lastUpdateDateTime",))
    if made and stamp.quality == "received":
        # An alert that nothing was added to has no time of an update.
        stamp = stamp._replace(time=made, quality="exact", original=None)
    evidence = listed(fields, "evidence")
    state = take_text(fields, "status")
    techniques = take_texts(fields, "mitreTechniques")
    category = take_text(fields, "category")
    source, by = _source(evidence), _account(evidence)
    more: dict[str, Any] = {}
    if techniques:
        more["attacks"] = [{"technique": {"uid": uid_of}} for uid_of in techniques]
    product = take_text(fields, "productName")
    origin = take_text(fields, "detectionSource")
    record = CloudRecord({**_PRODUCT, "name": product or _PRODUCT["name"]}, fields, stamp)
    detector = take_text(fields, "detectorId")
    tenant = take_text(fields, "tenantId")
    level = take_text(fields, "severity")
    row = record.event(
        FINDING,
        _STATES.get((state or "").lower(), 1),
        about=kept(
            uid=take_text(fields, "providerAlertId"),
            correlation_uid=take_name(fields, "incidentId"),
            log_name=take_text(fields, "serviceSource"),
            log_provider=origin,
            event_code=state,
        ),
        message=title or f"alert {uid}",
        severity=severity_of(level),
        source=source,
        by=by,
        device=_device(evidence),
        file=_file(evidence),
        start_time=seen,
        end_time=last,
        cloud=kept(provider="Azure", account={"uid": tenant}) if tenant else None,
        finding_info=kept(
            uid=uid or title,
            title=title or uid,
            desc=take_text(fields, "description"),
            types=[category] if category else None,
            src_url=take_text(fields, "alertWebUrl"),
            created_time=made or stamp.time,
            analytic=kept(uid=detector, name=detector, type_id=UNKNOWN) if detector else None,
        ),
        more=more or None,
    )
    process = _process(evidence)
    if process:
        row["actor"] = (row.get("actor") or {}) | {"process": process}
    return row


@dataclass(frozen=True)
class GraphAlerts(EnvelopedSource):
    """Security alerts of Microsoft Graph, version 2."""

    name: str = "graph_alerts"
    time_keys: ClassVar[tuple[str, ...]] = ("lastUpdateDateTime", "createdDateTime")

    def is_own(self, fields: Fields) -> bool:
        return any(name in fields for name in _MARKS)

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (GraphAlerts(),)
