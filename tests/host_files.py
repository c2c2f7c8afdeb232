"""What the tests of the inventory share: where a host's variables may stand, and what stands there."""

from __future__ import annotations

KEY = "strapi_instances"
OWNED = "---\n# Written by tuner. Change it with: tuner recommend --host prod1\nstrapi_instances: 3\n"
VAULTED = "$ANSIBLE_VAULT;1.1;AES256\n6231\n"
VAULT_BLOCK = """\
db_password: !vault |
          $ANSIBLE_VAULT;1.1;AES256
          62313365396662343061393464336163383764373764613633653634306231386433626436623361
          6134333665353966363534333632666535333761666131620a663537646436643839616531643561
"""
DIRECTORY = "inv/host_vars/prod1"
FILE = "inv/host_vars/prod1.yml"
OWNED_FILE = f"{DIRECTORY}/tuner.yml"
BESIDE_PLAYBOOKS = "playbooks/host_vars/prod1.yml"
