"""Microsoft Defender and the alerts of Microsoft Graph."""
