"""Which table knows an event: by its provider, the provider's GUID, or else its channel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ingest.sources.windows.defender import (
    APPLOCKER,
    CAPI2,
    CODE_INTEGRITY,
    DEFENDER,
    MITIGATIONS,
)
from ingest.sources.windows.directory_services import ADFS, DOMAIN_SERVICES, NTLM
from ingest.sources.windows.network_logs import NETWORK_LOGS
from ingest.sources.windows.operational import OPERATIONAL
from ingest.sources.windows.powershell import CLASSIC
from ingest.sources.windows.powershell import OPERATIONAL as POWERSHELL
from ingest.sources.windows.record import Logged
from ingest.sources.windows.rule import EventRule
from ingest.sources.windows.security_accounts import ACCOUNTS
from ingest.sources.windows.security_logon import LOGONS
from ingest.sources.windows.security_network import NETWORKING
from ingest.sources.windows.security_objects import OBJECTS
from ingest.sources.windows.security_system import MACHINE as SECURITY_MACHINE
from ingest.sources.windows.sysmon import SYSMON
from ingest.sources.windows.system_log import APPLICATIONS, EVENTLOG, MACHINE, SERVICES

_Table = Mapping[int, EventRule]
_SECURITY: _Table = MappingProxyType(
    {**SECURITY_MACHINE, **OBJECTS, **NETWORKING, **ACCOUNTS, **LOGONS}
)
AUDIT_LOG: _Table = MappingProxyType(
    {**EVENTLOG, **{uid: rule for uid, rule in SECURITY_MACHINE.items() if uid < 2000}}
)
BY_PROVIDER: Mapping[str, _Table] = MappingProxyType(
    {
        **MACHINE,
        **APPLICATIONS,
        **OPERATIONAL,
        **NETWORK_LOGS,
        **NTLM,
        "microsoft-windows-capi2": CAPI2,
        "microsoft-windows-security-auditing": _SECURITY,
        "security": _SECURITY,
        "ad fs auditing": ADFS,
        "ad fs": ADFS,
        "ad fs 2.0 auditing": ADFS,
        "microsoft-windows-activedirectory_domainservice": DOMAIN_SERVICES,
        "ntds general": DOMAIN_SERVICES,
        "ntds ldap": DOMAIN_SERVICES,
        "microsoft-windows-eventlog": AUDIT_LOG,
        "microsoft-windows-sysmon": SYSMON,
        "linux-sysmon": SYSMON,
        "microsoft-windows-powershell": POWERSHELL,
        "powershellcore": POWERSHELL,
        "powershell": CLASSIC,
        "service control manager": SERVICES,
        "microsoft-windows-service control manager": SERVICES,
        "microsoft-windows-windows defender": DEFENDER,
        "microsoft antimalware": DEFENDER,
        "microsoft-windows-applocker": APPLOCKER,
        "microsoft-windows-codeintegrity": CODE_INTEGRITY,
        "microsoft-windows-security-mitigations": MITIGATIONS,
    }
)
BY_GUID: Mapping[str, _Table] = MappingProxyType(
    {
        "54849625-5478-4994-a5ba-3e3b0328c30d": _SECURITY,
        "5770385f-c22a-43e0-bf4c-06f5698ffbd9": SYSMON,
        "ff032593-a8d3-4f13-b0d6-01fc615a0f97": SYSMON,
        "a0c1853b-5c40-4b15-8766-3cf1c58f985a": POWERSHELL,
        "555908d1-a6d7-4695-8e1e-26931d2012f4": SERVICES,
        "fc65ddd8-d6ef-4962-83d5-6e5cfe9ce148": AUDIT_LOG,
        "11cd958a-c507-4ef3-b3f2-5fd9dfbd2c78": DEFENDER,
    }
)
BY_CHANNEL: Mapping[str, _Table] = MappingProxyType(
    {
        "security": _SECURITY,
        "system": MappingProxyType({**EVENTLOG, **SERVICES}),
        "windows powershell": CLASSIC,
        "microsoft-windows-powershell/operational": POWERSHELL,
        "powershellcore/operational": POWERSHELL,
        "microsoft-windows-sysmon/operational": SYSMON,
        "linux-sysmon/operational": SYSMON,
        "microsoft-windows-windows defender/operational": DEFENDER,
    }
)
SYSMON_PRODUCT: Mapping[str, str] = {"name": "Sysmon", "vendor_name": "Microsoft"}
DEFENDER_PRODUCT: Mapping[str, str] = {
    "name": "Microsoft Defender Antivirus",
    "vendor_name": "Microsoft",
}
_WINDOWS: Mapping[str, str] = {"name": "Windows", "vendor_name": "Microsoft"}


def table_of(log: Logged) -> _Table | None:
    """The table of its provider; by the channel only where no provider is named."""
    if log.provider is not None:
        name = log.provider.lower()
        # An instance of SQL Server is a provider of its own: MSSQL$NAME.
        mapping = BY_PROVIDER.get("mssqlserver" if name.startswith("mssql$") else name)
        if mapping is not None:
            return mapping
    # Some shippers keep only the GUID of a provider.
    if log.guid is not None:
        return BY_GUID.get(log.guid.strip("{}").lower())
    if log.provider is None:
        channel = (log.channel or "").lower()
        return BY_CHANNEL.get(channel) or _named_by(channel)
    return None


def _named_by(channel: str) -> _Table | None:
    """`Microsoft-Windows-TaskScheduler/Operational` is named after its provider."""
    return BY_PROVIDER.get(channel.partition("/")[0])


def rule_of(log: Logged) -> EventRule | None:
    """What is known of the event."""
    table = table_of(log)
    return table.get(log.event_id) if table is not None else None


def product_of(log: Logged) -> Mapping[str, str]:
    """Which product logged it."""
    table = table_of(log)
    if table is SYSMON:
        return SYSMON_PRODUCT
    return DEFENDER_PRODUCT if table is DEFENDER else _WINDOWS
