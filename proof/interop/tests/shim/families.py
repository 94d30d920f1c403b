"""What AI_ADDRCONFIG leaves of names, by the addresses that this host has."""
import socket
import sys

HOST = sys.argv[1]
FAMILIES = (socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6)

for name, shown in ((HOST, "host"), ("2001:db8::9", "far"), ("127.0.0.1", "loopback"), ("::1", "loopback of IPv6"), (None, "any")):
    for family in FAMILIES:
        for flags in (socket.AI_ADDRCONFIG, socket.AI_ADDRCONFIG | socket.AI_PASSIVE, socket.AI_ADDRCONFIG | socket.AI_V4MAPPED, 0):
            try:
                found = socket.getaddrinfo(name, 80, family, socket.SOCK_STREAM, 0, flags)
                told = sorted((entry[0].name, entry[4][0].replace(HOST, "host")) for entry in found)
            except socket.gaierror as error:
                told = error.errno
            print(shown, family.name, flags, told)
