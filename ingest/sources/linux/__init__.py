"""Linux hosts: auditd, sshd, sudo, PAM, xrdp, dropbear, netfilter."""
