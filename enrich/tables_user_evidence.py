"""Views of what else tells who used a device: VPN, Kerberos, logons, and DHCP as Zeek saw it."""

from __future__ import annotations

from infra.delta.schema import View

_LONGEST_LEASE_SECONDS = 366 * 86400
"""A line may claim any length; beyond this the end of its span could not be written."""

_COLUMNS = "event_uid, source, scope, ip, mac, host, user_name, user_domain, user_uid"

_PERSON = (
    "e.user_name IS NOT NULL AND e.user_name NOT LIKE '%$' "
    "AND lower(e.user_name) NOT IN ('anonymous logon', 'system', '-') "
    "AND (e.user.uid IS NULL OR (e.user.uid NOT IN ('S-1-5-7', 'S-1-5-18', 'S-1-5-19', 'S-1-5-20') "
    "AND e.user.uid NOT LIKE 'S-1-5-90-%' AND e.user.uid NOT LIKE 'S-1-5-96-%'))"
)
"""Accounts of machines and of Windows itself are nobody; source of the SIDs: Microsoft,
"Well-known SIDs"."""

_AWAY = (
    "e.src_ip IS NOT NULL AND e.src_ip NOT LIKE '127.%' "
    "AND e.src_ip NOT IN ('::1', '0.0.0.0', '::')"
)
_USER = "e.user_name, e.user.domain AS user_domain, e.user.uid AS user_uid"

# Windows' logon types: 2, 7 and 11 are at the machine itself, whose name stands for the device; 3,
# 8 and 10 come over the network, so the address does.
_AT_HOST = "e.metadata.event_code = '4624' AND e.logon_type_id IN (2, 7, 11)"
_OVER_NETWORK = "e.metadata.event_code = '4624' AND e.logon_type_id IN (3, 8, 10)"
_SSH = "e.metadata.product.name IN ('OpenSSH', 'Dropbear SSH')"

# One look at the events for all of them: each look opens every file.
_POINTS = f"""
SELECT kind, time, CAST(NULL AS TIMESTAMP) AS until, event_uid, source, scope,
       CASE WHEN kind <> 'logon' THEN src_ip END AS ip, CAST(NULL AS STRING) AS mac,
       CASE WHEN kind = 'logon' THEN lower(host_name) END AS host,
       user_name, user_domain, user_uid
FROM (
  SELECT CASE WHEN e.activity_id IN (3, 4) THEN 'kerberos' WHEN {_AT_HOST} THEN 'logon'
              WHEN {_OVER_NETWORK} THEN 'network_logon' ELSE 'ssh' END AS kind,
         e.time, e.event_uid, e.source, e.scope, e.src_ip, e.host_name, {_USER}
  FROM silver.events e
  WHERE e.class_uid = 3002 AND e.status_id = 1 AND {_PERSON}
    AND ((e.activity_id = 1 AND {_AT_HOST})
      OR ({_AWAY} AND (
        (e.activity_id IN (3, 4) AND e.auth_protocol = 'Kerberos')
        OR (e.activity_id = 1 AND ({_OVER_NETWORK} OR {_SSH})))))
) points
"""

# A pattern and no JSON function, as Spark and DuckDB both read this text; `[{]`, for Java takes
# a bare brace for the beginning of a count.
_TUNNELS = """
SELECT e.time, e.event_uid, e.source, e.scope, e.src_ip, e.host_name, e.user_name,
       e.user.domain AS user_domain, e.user.uid AS user_uid, e.activity_id,
       nullif(regexp_extract(
         e.more, '"tunnel_interface":[{][^}]*"ip":"([0-9A-Fa-f.:]+)"', 1), '') AS inside
FROM silver.events e
WHERE e.class_uid = 4014 AND e.user_name IS NOT NULL AND e.status_id = 1
"""

# `again`: who gets the address inside next ends the session before, also where no end was logged.
_SPANS = f"""
SELECT t.*,
       min(CASE WHEN activity_id = 2 THEN time END) OVER (
         PARTITION BY host_name, user_name, src_ip ORDER BY time, event_uid
         ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS closed,
       lead(time) OVER (PARTITION BY host_name, inside ORDER BY time, event_uid) AS again
FROM ({_TUNNELS}) t
"""

# The earlier end of those that are known, whatever `least` makes of a null.
_VPN = f"""
SELECT kind, time,
       CASE WHEN kind = 'vpn'
            THEN least(coalesce(closed, again), coalesce(again, closed)) ELSE closed END AS until,
       event_uid, source, scope, CASE WHEN kind = 'vpn' THEN inside ELSE src_ip END AS ip,
       CAST(NULL AS STRING) AS mac, CAST(NULL AS STRING) AS host,
       user_name, user_domain, user_uid
FROM ({_SPANS}) spans CROSS JOIN (SELECT 'vpn' AS kind UNION ALL SELECT 'vpn_client') kinds
WHERE (kind = 'vpn' AND inside IS NOT NULL AND activity_id <> 2)
   OR (kind = 'vpn_client' AND src_ip IS NOT NULL AND activity_id = 1)
"""

_DHCP = f"""
SELECT 'dhcp' AS kind, e.time,
       e.time + INTERVAL '1' SECOND * least(greatest(e.lease_dur, 0), {_LONGEST_LEASE_SECONDS})
         AS until,
       e.event_uid, e.source, e.scope, e.src_ip AS ip, lower(coalesce(e.mac, e.src_endpoint.mac)),
       lower(e.src_endpoint.hostname) AS host, CAST(NULL AS STRING) AS user_name,
       CAST(NULL AS STRING) AS user_domain, CAST(NULL AS STRING) AS user_uid
FROM silver.events e
WHERE e.class_uid = 4004 AND e.activity_id = 5 AND e.metadata.product.name = 'Zeek'
  AND e.src_ip IS NOT NULL AND e.lease_dur IS NOT NULL
"""

WITNESS_VIEWS = (
    View(
        "silver.witness",
        "What else tells who was where: a VPN session (vpn: the address inside; vpn_client: the "
        "one it came from), a Kerberos ticket, a Windows logon at a host (logon) or from an "
        "address (network_logon), a login by SSH, a lease as Zeek saw it on the wire (dhcp)",
        " UNION ALL ".join((_VPN, _POINTS, _DHCP)),
    ),
    View(
        "gold.device_user",
        "Each witness of a user with the device that held its address then; device_mac is null "
        "where no lease covered the address, or the witness names a host alone",
        f"""
        SELECT kind, time, until, {_COLUMNS}, device_mac, device_name FROM (
          SELECT w.*, s.mac AS device_mac, s.hostname AS device_name,
                 row_number() OVER (
                   PARTITION BY w.time, w.event_uid, w.kind ORDER BY s.rev DESC) AS nth
          FROM silver.witness w
          LEFT JOIN silver.dhcp_segment s
            ON s.ip = w.ip AND (w.scope IS NULL OR s.scope = w.scope) AND s.kind <> 'heartbeat'
           AND s.seg_start <= w.time AND s.seg_end > w.time
          WHERE w.user_name IS NOT NULL
        ) seen WHERE nth = 1
        """,
    ),
)
