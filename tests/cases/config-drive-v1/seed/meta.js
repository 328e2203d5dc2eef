{
 "instance-id": "i-v1",
 "hostname": "old",
 "dsmode": "net",
 "user-data": "#cloud-config\nwrite_files:\n- {path: /etc/x, content: v1}\n",
 "public-keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJustAnExampleKeyMaterialForTestVectors00 nova@host"
}
