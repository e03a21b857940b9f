"""Security log: accounts, groups, rights and the policies about them.

https://learn.microsoft.com/windows/security/threat-protection/auditing/audit-user-account-management
and the pages beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import ACCOUNT, AUTHORIZATION, GROUP, OTHER, USER_ACCESS
from ingest.sources.windows.record import Fields, Logged, filled
from ingest.sources.windows.rule import (
    EventRule,
    WindowsColumns,
    actor,
    managed,
    managing,
    merged,
    names,
    other,
    process,
    source,
    subject,
    target,
)

# Activities of OCSF's Account Change (3001).
_CREATE, ENABLE, _PASSWORD, _RESET, DISABLE, _DELETE, _LOCK, _UNLOCK = 1, 2, 3, 4, 5, 6, 9, 12
_UPDATE = other("Update")


def account(fields: Fields, log: Logged) -> WindowsColumns:
    """What was done to an account, by whom."""
    columns: WindowsColumns = {"user": target(fields), "actor": actor(fields)}
    if columns["user"] is not None:
        columns["user"]["full_name"] = fields.text("DisplayName")
        columns["user"]["email_addr"] = _mail(fields)
    return columns


def _mail(fields: Fields) -> str | None:
    """The user principal name, where it is one; `-` says it did not change."""
    name = fields.peek("UserPrincipalName")
    return fields.text("UserPrincipalName") if name and "@" in name else None


def lockout(fields: Fields, log: Logged) -> WindowsColumns:
    """4740: the caller's machine stands, oddly, in the field of the target's domain."""
    caller = fields.text("TargetDomainName")
    who = fields.user("TargetUserName", "", "TargetSid")
    return {
        "user": who,
        "actor": actor(fields),
        "src_endpoint": filled(hostname=caller.lstrip("\\") if caller else None),
    }


def renamed(fields: Fields, log: Logged) -> WindowsColumns:
    """4781: the account under its new name."""
    who = fields.user("NewTargetUserName", "TargetDomainName", "TargetSid")
    return {"user": who, "actor": actor(fields)}


def dsrm(fields: Fields, log: Logged) -> WindowsColumns:
    """4794: the password of the restore mode's administrator."""
    workstation = fields.text("Workstation")
    return {
        "user": {"name": "Administrator", "domain": log.computer},
        "actor": actor(fields),
        "src_endpoint": filled(hostname=workstation),
    }


def _group(fields: Fields, log: Logged) -> WindowsColumns:
    """A group made, changed or deleted."""
    about = fields.user("TargetUserName", "TargetDomainName", "TargetSid")
    return {"group": about or {"name": "unknown"}, "actor": actor(fields)}


def member(fields: Fields, log: Logged) -> WindowsColumns:
    """A member put into a group or taken out. Its name is a distinguished name, if any."""
    who = fields.user("MemberName", "", "MemberSid")
    return _group(fields, log) | {"user": who}


def group_read(fields: Fields, log: Logged) -> WindowsColumns:
    """4799: somebody listed a group's members."""
    by = process(fields, "CallerProcessName", "CallerProcessId")
    event = _group(fields, log)
    return event | {"actor": filled(**{**(event["actor"] or {}), **(filled(process=by) or {})})}


def account_read(fields: Fields, log: Logged) -> WindowsColumns:
    """4798: somebody listed the groups of a user."""
    by = process(fields, "CallerProcessName", "CallerProcessId")
    who = subject(fields) or {}
    return {"user": target(fields), "actor": filled(**who, process=by)}


def right(fields: Fields, log: Logged) -> WindowsColumns:
    """4704, 4705, 4717, 4718: a right given to an account or taken from it."""
    granted = names(fields.text("PrivilegeList", "AccessGranted", "AccessRemoved"))
    who = fields.user("TargetUserName", "TargetDomainName", "TargetSid")
    return {
        # The SID of nobody ([MS-DTYP] 2.4.2.4): OCSF's User Access Management requires a user.
        "user": who or {"uid": "S-1-0-0"},
        "actor": actor(fields),
        "privileges": granted or ["unknown"],
    }


def token(fields: Fields, log: Logged) -> WindowsColumns:
    """4703: rights switched on in a token, or off. Of both the latter stay in unmapped."""
    enabled = names(fields.text("EnabledPrivilegeList"))
    taken = None if enabled else names(fields.text("DisabledPrivilegeList"))
    return {
        "activity_id": OTHER if taken else 1,
        "activity_name": "Remove Privileges" if taken else None,
        "user": target(fields),
        "session": filled(uid=fields.logon("TargetLogonId")),
        "actor": actor(fields),
        "privileges": enabled or taken,
    }


def used(fields: Fields, log: Logged) -> WindowsColumns:
    """4673, 4674: a right used; on which object stays in unmapped."""
    by = actor(fields) or {}
    return {
        "user": by.get("user"),
        "session": by.get("session"),
        "actor": by,
        "privileges": names(fields.text("PrivilegeList")),
    }


def password_read(fields: Fields, log: Logged) -> WindowsColumns:
    """4782, 4793, 4797: passwords asked for or checked."""
    columns = merged({"user": target(fields)}, {"actor": actor(fields)})
    workstation = fields.text("Workstation")
    return columns | {
        "user": columns["user"] or (columns["actor"] or {}).get("user") or {"uid": "S-1-0-0"},
        "src_endpoint": filled(hostname=workstation) or source(fields, host=""),
    }


def _account(activity: int, title: str, columns: Any = account, **always: Any) -> EventRule:
    return EventRule(ACCOUNT, activity, title, columns, always)


def _groups() -> Iterator[tuple[int, EventRule]]:
    """The events of the groups: same five of each kind, in an order of their own."""
    kinds = (
        ("A security-enabled global group", 4727, 4728, 4729, 4730, 4737),
        ("A security-enabled local group", 4731, 4732, 4733, 4734, 4735),
        ("A security-disabled local group", 4744, 4746, 4747, 4748, 4745),
        ("A security-disabled global group", 4749, 4751, 4752, 4753, 4750),
        ("A security-enabled universal group", 4754, 4756, 4757, 4758, 4755),
        ("A security-disabled universal group", 4759, 4761, 4762, 4763, 4760),
        ("A basic application group", 4783, 4785, 4786, 4789, 4784),
    )
    for kind, made, added, removed, deleted, changed in kinds:
        # 3 to 6: activities of OCSF's Group Management (3006), add and remove a user, delete and
        # create.
        of = kind[0].lower() + kind[1:]
        yield made, EventRule(GROUP, 6, f"{kind} was created.", _group)
        yield added, EventRule(GROUP, 3, f"A member was added to {of}.", member)
        yield removed, EventRule(GROUP, 4, f"A member was removed from {of}.", member)
        yield deleted, EventRule(GROUP, 5, f"{kind} was deleted.", _group)
        yield changed, EventRule(GROUP, OTHER, f"{kind} was changed.", _group, _UPDATE)


ACCOUNTS: Mapping[int, EventRule] = MappingProxyType(
    {
        **dict(_groups()),
        4720: _account(_CREATE, "A user account was created."),
        4722: _account(ENABLE, "A user account was enabled."),
        4723: _account(_PASSWORD, "An attempt was made to change an account's password."),
        4724: _account(_RESET, "An attempt was made to reset an account's password."),
        4725: _account(DISABLE, "A user account was disabled."),
        4726: _account(_DELETE, "A user account was deleted."),
        4738: _account(OTHER, "A user account was changed.", **_UPDATE),
        4740: _account(_LOCK, "A user account was locked out.", lockout),
        4741: _account(_CREATE, "A computer account was created."),
        4742: _account(OTHER, "A computer account was changed.", **_UPDATE),
        4743: _account(_DELETE, "A computer account was deleted."),
        4764: EventRule(GROUP, OTHER, "A group's type was changed.", _group, _UPDATE),
        4765: _account(OTHER, "SID History was added to an account.", **other("Add SID History")),
        4766: _account(
            OTHER,
            "An attempt to add SID History to an account failed.",
            **other("Add SID History"),
            status_id=2,
        ),
        4767: _account(_UNLOCK, "A user account was unlocked."),
        4780: _account(
            OTHER,
            "The ACL was set on accounts which are members of administrators groups.",
            **_UPDATE,
        ),
        4781: _account(OTHER, "The name of an account was changed.", renamed, **other("Rename")),
        4782: _account(
            OTHER,
            "The password hash of an account was accessed.",
            password_read,
            **other("Read Password Hash"),
        ),
        4787: EventRule(GROUP, 3, "A non-member was added to a basic application group.", member),
        4788: EventRule(
            GROUP, 4, "A non-member was removed from a basic application group.", member
        ),
        4790: EventRule(GROUP, 6, "An LDAP query group was created.", _group),
        4791: EventRule(GROUP, OTHER, "A basic application group was changed.", _group, _UPDATE),
        4792: EventRule(GROUP, 5, "An LDAP query group was deleted.", _group),
        4793: _account(
            OTHER,
            "The Password Policy Checking API was called.",
            password_read,
            **other("Check Password Policy"),
        ),
        4794: _account(
            _RESET,
            "An attempt was made to set the Directory Services Restore Mode administrator "
            "password.",
            dsrm,
        ),
        4797: _account(
            OTHER,
            "An attempt was made to query the existence of a blank password for an account.",
            password_read,
            **other("Query Blank Password"),
        ),
        4798: _account(
            OTHER,
            "A user's local group membership was enumerated.",
            account_read,
            **other("Enumerate Groups"),
        ),
        4799: EventRule(
            GROUP,
            OTHER,
            "A security-enabled local group membership was enumerated.",
            group_read,
            other("Enumerate Members"),
        ),
        4703: EventRule(AUTHORIZATION, 1, "A token right was adjusted.", token),
        4673: EventRule(
            AUTHORIZATION, OTHER, "A privileged service was called.", used, other("Use Privileges")
        ),
        4674: EventRule(
            AUTHORIZATION,
            OTHER,
            "An operation was attempted on a privileged object.",
            used,
            other("Use Privileges"),
        ),
        4704: EventRule(USER_ACCESS, 1, "A user right was assigned.", right),
        4705: EventRule(USER_ACCESS, 2, "A user right was removed.", right),
        4717: EventRule(USER_ACCESS, 1, "System security access was granted to an account.", right),
        4718: EventRule(
            USER_ACCESS, 2, "System security access was removed from an account.", right
        ),
        4706: managing(
            1,
            "A new trust was created to a domain.",
            managed("trust", ("DomainName",), ("DomainSid",)),
        ),
        4707: managing(
            4, "A trust to a domain was removed.", managed("trust", ("DomainName",), ("DomainSid",))
        ),
        4713: managing(3, "Kerberos policy was changed.", managed("Kerberos policy")),
        4714: managing(
            3, "Data Recovery Agent group policy for EFS has changed.", managed("EFS policy")
        ),
        4715: managing(
            3, "The audit policy (SACL) on an object was changed.", managed("audit policy")
        ),
        4716: managing(
            3,
            "Trusted domain information was modified.",
            managed("trust", ("DomainName",), ("DomainSid",)),
        ),
        4719: managing(
            3,
            "System audit policy was changed.",
            managed("audit policy", (), ("SubcategoryGuid",)),
        ),
        4739: managing(
            3,
            "Domain Policy was changed.",
            managed("domain policy", ("DomainName",), ("DomainSid",)),
        ),
        4817: managing(
            3, "Auditing settings on object were changed.", managed("audit policy", ("ObjectName",))
        ),
        4865: managing(
            1,
            "A trusted forest information entry was added.",
            managed("trust", ("ForestRoot",), ("ForestRootSid",)),
        ),
        4866: managing(
            4,
            "A trusted forest information entry was removed.",
            managed("trust", ("ForestRoot",), ("ForestRootSid",)),
        ),
        4867: managing(
            3,
            "A trusted forest information entry was modified.",
            managed("trust", ("ForestRoot",), ("ForestRootSid",)),
        ),
        4902: managing(1, "The Per-user audit policy table was created.", managed("audit policy")),
        4904: managing(
            1,
            "An attempt was made to register a security event source.",
            managed("security event source", ("AuditSourceName",), ("EventSourceId",)),
        ),
        4905: managing(
            4,
            "An attempt was made to unregister a security event source.",
            managed("security event source", ("AuditSourceName",), ("EventSourceId",)),
        ),
        4906: managing(3, "The CrashOnAuditFail value has changed.", managed("audit policy")),
        4908: managing(3, "Special Groups Logon table modified.", managed("special groups")),
        4912: managing(
            3,
            "Per User Audit Policy was changed.",
            managed("audit policy", (), ("SubcategoryGuid",)),
        ),
    }
)
