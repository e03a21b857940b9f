"""Server programs: FreeRADIUS, OpenLDAP, OpenVPN, ProFTPD, vsftpd."""
