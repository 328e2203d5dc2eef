"""Words in a case's documents, which are replaced by what all cases share."""

import base64
import json

# What every cloud's user-data asks for: the checks of guest/cloud look at it.
USER_DATA = """#cloud-config
ssh_authorized_keys: ["{key}"]
runcmd:
  - echo "ran on $(hostname)" >/var/log/runcmd.out
"""


def filled(value, key):
    """A document, or a mapping or list of them: @SSH_KEY@ is the public key, @USER_DATA@ the user-data as it is, @USER_DATA_JSON@
    the same inside a JSON string, @USER_DATA_BASE64@ in base64."""
    if isinstance(value, dict):
        return {name: filled(inner, key) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, key) for inner in value]
    if not isinstance(value, str):
        return value
    data = USER_DATA.format(key=key)
    words = {"@USER_DATA_JSON@": json.dumps(data)[1:-1], "@USER_DATA_BASE64@": base64.b64encode(data.encode()).decode(),
             "@USER_DATA@": data, "@SSH_KEY@": key}
    for word, text in words.items():
        value = value.replace(word, text)
    return value
