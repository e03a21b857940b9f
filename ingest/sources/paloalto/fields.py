"""The columns of PAN-OS's logs, in order, under the names that PAN-OS gives them.

https://docs.paloaltonetworks.com/pan-os/11-0/pan-os-admin/monitoring/use-syslog-for-monitoring/syslog-field-descriptions
Every release has added columns at the end; an older one has fewer. `_` is a column
that PAN-OS reserves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_HEAD = "_ receive_time serial type subtype config_ver time_generated"
_SESSION = (
    f"{_HEAD} src dst natsrc natdst rule srcuser dstuser app vsys from to inbound_if outbound_if "
    "logset time_logged sessionid repeatcnt sport dport natsport natdport flags proto action"
)
_GROUPS = "dg_hier_level_1 dg_hier_level_2 dg_hier_level_3 dg_hier_level_4 vsys_name device_name"
_SRC = "src_category src_profile src_model src_vendor src_osfamily src_osversion src_host src_mac"
_DST = "dst_category dst_profile dst_model dst_vendor dst_osfamily dst_osversion dst_host dst_mac"
_PODS = "container_id pod_namespace pod_name src_edl dst_edl"
_APP = (
    "subcategory_of_app category_of_app technology_of_app risk_of_app characteristic_of_app "
    "container_of_app tunneled_app is_saas_of_app sanctioned_state_of_app"
)

LAYOUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        kind: tuple(columns.split())
        for kind, columns in {
            "TRAFFIC": f"{_SESSION} bytes bytes_sent bytes_received packets start elapsed category "
            f"_ seqno actionflags srcloc dstloc _ pkts_sent pkts_received session_end_reason "
            f"{_GROUPS} action_source src_uuid dst_uuid imsi imei parent_session_id "
            "parent_start_time tunnel assoc_id chunks chunks_sent chunks_received rule_uuid "
            "http2_connection link_change_count policy_id link_switches sdwan_cluster "
            "sdwan_device_type sdwan_cluster_type sdwan_site dynusergroup_name xff_ip "
            f"{_SRC} {_DST} {_PODS} hostid serialnumber src_dag dst_dag session_owner "
            f"high_res_timestamp nssai_sst nssai_sd {_APP} offloaded flow_type cluster_name "
            "ai_traffic ai_fwd_error k8s_cluster_id",
            "THREAT": f"{_SESSION} misc threatid category severity direction seqno actionflags "
            "srcloc dstloc _ contenttype pcap_id filedigest cloud url_idx user_agent filetype xff "
            f"referer sender subject recipient reportid {_GROUPS} _ src_uuid dst_uuid http_method "
            "imsi imei parent_session_id parent_start_time tunnel thr_category contentver _ "
            "assoc_id ppid http_headers url_category_list rule_uuid http2_connection "
            f"dynusergroup_name xff_ip {_SRC} {_DST} {_PODS} hostid serialnumber domain_edl "
            "src_dag dst_dag partial_hash high_res_timestamp reason justification nssai_sst "
            f"{_APP} cloud_reportid cluster_name flow_type",
            "SYSTEM": f"{_HEAD} vsys eventid object _ _ module severity opaque seqno actionflags "
            f"{_GROUPS} _ _ high_res_timestamp",
            "CONFIG": f"{_HEAD} host vsys cmd admin client result path seqno actionflags "
            f"{_GROUPS} dg_id comment _ high_res_timestamp before_change_detail "
            "after_change_detail",
            "USERID": f"{_HEAD} vsys ip user datasourcename eventid repeatcnt timeout beginport "
            f"endport datasource datasourcetype seqno actionflags {_GROUPS} vsys_id factortype "
            "factorcompletiontime factorno ugflags userbysource tag_name high_res_timestamp "
            "origindatasource _ cluster_name",
            "GLOBALPROTECT": f"{_HEAD} vsys eventid stage auth_method tunnel_type srcuser "
            "srcregion machinename public_ip public_ipv6 private_ip private_ipv6 hostid "
            "serialnumber client_ver client_os client_os_ver repeatcnt reason error opaque status "
            "location login_duration connect_method error_code portal seqno actionflags "
            "high_res_timestamp selection_type response_time priority attempted_gateways gateway "
            f"{_GROUPS} vsys_id cluster_name",
            "HIPMATCH": f"{_HEAD} srcuser vsys machinename os src matchname repeatcnt matchtype "
            f"_ _ seqno actionflags {_GROUPS} vsys_id srcipv6 hostid serialnumber src_mac "
            "high_res_timestamp cluster_name",
            "AUTHENTICATION": f"{_HEAD} vsys ip user normalize_user object authpolicy repeatcnt "
            "authid vendor logset serverprofile desc clienttype event factorno seqno actionflags "
            f"{_GROUPS} vsys_id authproto rule_uuid high_res_timestamp {_SRC} region _ user_agent "
            "sessionid cluster_name",
            "DECRYPTION": f"{_SESSION} tunnel _ _ src_uuid dst_uuid rule_uuid hs_stage_c2f "
            "hs_stage_f2s tls_version tls_keyxchg tls_enc tls_auth policy_name ec_curve err_index "
            "root_status chain_status proxy_type cert_serial fingerprint notbefore notafter "
            "cert_ver cert_size cn_len issuer_len rootcn_len sni_len cert_flags cn issuer_cn "
            f"root_cn sni error {_PODS} src_dag dst_dag high_res_timestamp {_SRC} {_DST} seqno "
            f"actionflags {_GROUPS} vsys_id {_APP} cluster_name",
            "CORRELATION": f"{_HEAD} src srcuser vsys category severity {_GROUPS} vsys_id "
            "objectname object_id evidence",
            "IPTAG": f"{_HEAD} vsys ip tag_name event_id repeatcnt timeout datasourcename "
            f"datasource_type datasource_subtype seqno actionflags {_GROUPS} vsys_id "
            "high_res_timestamp cluster_name",
            "SCTP": f"{_HEAD} src dst _ _ rule _ _ _ vsys from to inbound_if outbound_if logset _ "
            f"sessionid repeatcnt sport dport _ _ _ _ proto action {_GROUPS} seqno _ assoc_id ppid "
            "severity sctp_chunk_type _ verif_tag_1 verif_tag_2 sctp_cause_code diam_app_id "
            "diam_cmd_code diam_avp_code stream_id assoc_end_reason op_code sccp_calling_ssn "
            "sccp_calling_gt sctp_filter chunks chunks_sent chunks_received packets pkts_sent "
            "pkts_received rule_uuid high_res_timestamp",
        }.items()
    }
)
"""Each type's columns. `HIP-MATCH` and `TUNNEL` have others' layouts, see `layout`."""

_SAME: Mapping[str, str] = MappingProxyType(
    {"HIP-MATCH": "HIPMATCH", "AUTH": "AUTHENTICATION", "USER-ID": "USERID", "URL": "THREAT"}
)


def layout(kind: str) -> tuple[str, ...]:
    """The columns of a type; of one that is not known, the seven that all begin with."""
    return LAYOUTS.get(_SAME.get(kind, kind), tuple(_HEAD.split()))
