"""A Kerberos realm for the tests: a KDC on a loopback port, principals, key tables, caches of tickets."""

import re
import subprocess

import peers
from tools import run, wait_until

REALM = "TEST.EXAMPLE"
SERVICE = f"xrootd/localhost@{REALM}"
PASSWORD = "password of the user"

CONFIGURATION = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 udp_preference_limit = 1
 clockskew = {skew}
{more}
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
{mapping}
 }}
[domain_realm]
 localhost = {realm}
"""

KDC_CONFIGURATION = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:0
 kdc_tcp_listen = 127.0.0.1:0
[realms]
 {realm} = {{
  database_name = {directory}/database
  key_stash_file = {directory}/stash
  max_life = 10h
  max_renewable_life = 10h
 }}
[logging]
 kdc = FILE:{directory}/kdc.log
"""


class Realm:
    """A realm below a directory that the servers' user can read. It has the users alice and bob, whose
    password is `PASSWORD`, and the key table of `SERVICE`. `skew` is the accepted difference of clocks in
    seconds, by which tickets are also valid longer."""

    def __init__(self, directory, skew=300):
        self.directory = directory
        self.skew = skew
        self.port = 0
        self.kdc = None
        (directory / "kdc.conf").write_text(KDC_CONFIGURATION.format(realm=REALM, directory=directory))
        self.configuration = self.configure("krb5.conf")
        self.administer("kdb5_util", "create", "-s", "-P", "master password", "-r", REALM)
        for user in ("alice", "bob", "bob/admin"):
            self.order(f'addprinc -pw "{PASSWORD}" {user}')
        self.order(f"addprinc -randkey {SERVICE}")
        self.keytab = self.key_table("server.keytab", SERVICE)

    def configure(self, name, more="", mapping=""):
        """Writes a configuration of the realm and returns it."""
        path = self.directory / name
        path.write_text(CONFIGURATION.format(realm=REALM, port=self.port, skew=self.skew, more=more, mapping=mapping))
        path.chmod(0o644)
        return path

    def administer(self, *command):
        return run(command, KRB5_CONFIG=str(self.configuration), KRB5_KDC_PROFILE=str(self.directory / "kdc.conf")).ok()

    def order(self, line):
        """Runs a command of kadmin on the database."""
        done = self.administer("kadmin.local", "-r", REALM, "-q", line)
        assert "while" not in done.err, done

    def key_table(self, name, *services):
        """Writes the present keys of services into a key table of the servers' user."""
        path = self.directory / name
        path.unlink(missing_ok=True)
        for service in services:
            self.order(f"ktadd -norandkey -k {path} {service}")
        path.chmod(0o600)
        return peers.give(path)

    def __enter__(self):
        environment = peers.environment(KRB5_CONFIG=str(self.configuration), KRB5_KDC_PROFILE=str(self.directory / "kdc.conf"))
        self.kdc = subprocess.Popen(["/usr/sbin/krb5kdc", "-n", "-r", REALM], env=environment, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=peers._die_with_parent)
        self.port = wait_until(self.listening_port)
        self.configuration = self.configure("krb5.conf")
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.kdc:
            self.kdc.kill()
            self.kdc.wait()
            self.kdc = None

    def listening_port(self):
        """Returns the port that the kernel has chosen for the KDC."""
        assert self.kdc.poll() is None, (self.directory / "kdc.log").read_text()
        listening = subprocess.run(["ss", "-Hlntp"], capture_output=True, check=True).stdout.decode()
        found = re.search(rf"127\.0\.0\.1:(\d+) .*pid={self.kdc.pid},", listening)
        return found and int(found.group(1))

    def client(self, cache, configuration=None, **more):
        """The environment of a client with a cache."""
        return {"KRB5_CONFIG": str(configuration or self.configuration), "KRB5CCNAME": f"FILE:{cache}", "XrdSecPROTOCOL": "krb5", **more}

    def login(self, cache, user="alice", *options, configuration=None):
        """Gets a ticket with the password, and returns the environment of a client with it."""
        environment = self.client(cache, configuration)
        run(["kinit", *options, f"{user}@{REALM}"], input=f"{PASSWORD}\n".encode(), **environment).ok()
        return environment

    def settings(self, *options, principal=SERVICE, keytab=None):
        """The lines of a server."""
        words = " ".join(map(str, (keytab or self.keytab, *options, principal)))
        return f"xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol krb5 {words}\n"

    def variables(self, directory, configuration=None):
        """The environment of a server, whose replay cache is in a directory."""
        return {"KRB5_CONFIG": str(configuration or self.configuration), "KRB5RCACHENAME": f"file2:{directory}/replays"}
