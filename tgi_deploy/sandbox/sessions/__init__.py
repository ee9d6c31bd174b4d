"""A stub of Session Manager and Run Command: AWS's own Session Manager plugin works with it, too.

Wire format and order of messages: https://github.com/aws/session-manager-plugin (src/message, src/datachannel,
src/sessionmanagerplugin) and https://github.com/aws/amazon-ssm-agent (agent/session), versions of 2026-04 and 2024-10.
"""
