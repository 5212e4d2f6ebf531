//! Directives of authentication and authorization: `sec.`, `acc.`.
//!
//! Those that are not in force yet stop the start, because the server would otherwise serve data
//! unprotected.

use super::authentication::{
    binding, binding_mode, level, parameters, protocol, security_trace, signed_data,
};
use super::authorization::{
    audit, authdb, encoding, lookup_lifetime, netgroup_domain, path_match, refresh, space_character,
};
use super::definition::{Directive, Section};
use super::grid_login::{key_bits, limited, list_sources, old_clients, proxy_types};
use super::login_encryption::tls_binding;
use super::standing::UsageFrequency;
use super::voms::map_file;

pub(super) const SECTION: Section = Section {
    title: "Access: sec., gsi., voms., acc.",
    about: "Authentication by host, unix, sss, ztn, krb5, gsi and pwd is in force once `xrootd.seclib` is there; see \
            [security.md](security.md). So is authorization by rules with `ofs.authorize`; see \
            [authorization.md](authorization.md). A directive that asks for another protocol or authorization stops \
            the start, except those without effect, so that nothing is ever served unprotected.",
    directives: &[
        Directive::new(&["sec.protocol"], UsageFrequency::Most, "[/libdir] name [options]", protocol)
            .default("none: the host identifies the client")
            .help(
                "Authentication protocols, in the order in which clients see them: `host`, `unix`, `sss`, `ztn` \
                 (bearer tokens, on encrypted connections), `krb5` (Kerberos), `gsi` (grid certificates) and `pwd` (passwords). The options of sss are `-s path` (keytab), `-c path` (keytab suggested to clients), `-l minutes` \
                 (lifetime of credentials), `-r minutes` (check for a changed keytab), `-p protocol[:…]` (accepted \
                 origins of forwarded identities), `-g` (ask for credentials), `-k` (select keys by name too). \
                 Those of ztn are `-maxsz size` (longest token, 4k), `-tokenlib libXrdMacaroons.so` \
                 (macaroons instead of tokens), `-tokenlib none` (tokens are not verified at the \
                 login, and only decide about requests), and with it `-expiry {ignore|optional|required}`. \
                 Those of krb5 are `[/keytab] [-ipchk] [-exptkn[:/template]] principal`; see \
                 [security.md](security.md#clients-with-kerberos-krb5). \
                 Those of gsi are in [security.md](security.md#options-of-gsi). \
                 Those of pwd are `-dir:path` (directory of the file of passwords) and `-maxfail:n`; see \
                 [security.md](security.md#clients-with-passwords-pwd).",
            )
            .example("host"),
        Directive::new(&["sec.protparm"], UsageFrequency::Common, "name options", parameters)
            .default("none")
            .help("Options of a later sec.protocol, which precede its own.")
            .example("sss -s /etc/xrootd/sss.keytab"),
        Directive::new(
            &["sec.protbind"],
            UsageFrequency::Common,
            "{host|*} {none|[only] protocol…}",
            binding,
        )
        .default("all protocols")
        .help(
            "Protocols of the hosts whose name matches: one `*` stands for any text, `localhost` for this host. The \
             first matching line other than `*` applies, then `*`. `none` and `host` ask for no authentication. \
             A client cannot use a protocol outside its list (XRootD: only with `only`).",
        )
        .example("* none"),
        Directive::new(&["sec.bindmode"], UsageFrequency::Rare, "{enforce|offer}", binding_mode)
            .default("enforce")
            .help("`offer`: a list of sec.protbind without `only` is what is offered, and any protocol is accepted.")
            .example("offer"),
        Directive::new(&["sec.bindtls"], UsageFrequency::Rare, "protocol…", tls_binding)
            .default("none")
            .help(
                "Protocols for encrypted connections only: clients without TLS are not offered them and cannot use \
                 them. Clients that support TLS then encrypt before they log in. Several lines add up. `ztn` is \
                 always limited so.",
            )
            .example("unix"),
        Directive::new(
            &["sec.level"],
            UsageFrequency::Common,
            "[all|local|remote] [relaxed] {none|compatible|standard|intense|pedantic} [force]",
            level,
        )
        .default("none")
        .help(
            "Requests that must be signed. Clients of `gsi` have a key for it. The other protocols give them none, so \
             only `force` has an effect: clients then send checksums of their requests, which detect accidents but not \
             attackers. `local` are \
             clients in the domain of the server or with a private address. `relaxed` exempts clients that are too \
             old to sign.",
        )
        .example("all none"),
        Directive::new(&["sec.signdata"], UsageFrequency::Rare, "{off|on}", signed_data)
            .default("off")
            .help(
                "`on`: signatures of writes also cover their data, if `sec.level` makes clients sign writes. \
                 The clients must support it, as `scalla` does. XRootD does not have this directive.",
            )
            .example("on"),
        Directive::guard(
            &["sec.entitylib"],
            UsageFrequency::Rare,
            "[++] /library [parameters]",
            "++ libXrdVoms.so",
            super::entity_program::entity_library,
        )
        .default("none")
        .help("Plug-in that adds attributes to a client's identity. Use `sec.entitymap` or `sec.entityprogram` instead."),
        Directive::new(
            &["sec.entitymap"],
            UsageFrequency::Rare,
            "path [keep|refuse]",
            super::entity_program::entity_map,
        )
        .default("none")
        .help(
            "File of rules that name the user and the groups of authenticated clients, or refuse them; see \
             [security.md](security.md#identities-by-a-map). `refuse`: clients that no rule matches are refused; \
             otherwise they keep the names of their protocol. XRootD does not have this directive.",
        )
        .example("/etc/xrootd/identities refuse"),
        Directive::new(
            &["sec.entityprogram"],
            UsageFrequency::Rare,
            "/program [argument…]",
            super::entity_program::entity_program,
        )
        .default("none")
        .executes(|effective| effective.security.entity_program.is_some())
        .help(
            "Program that names the user and the groups of each authenticated client, or refuses it; see \
             [security.md](security.md#identities-by-a-program). XRootD does not have this directive.",
        )
        .example("/usr/local/bin/map-user"),
        Directive::new(&["sec.trace"], UsageFrequency::Rare, "{all|debug|auth|authentication|off|-option}…", security_trace)
            .default("off")
            .help("Log level of authentication.")
            .example("debug"),
        Directive::new(&["gsi.limited"], UsageFrequency::Rare, "{refuse|read|full}", limited)
            .default("read")
            .help("Clients with a limited grid proxy: they are refused, may only read, or have all rights of the user.")
            .example("full"),
        Directive::new(&["gsi.proxytypes"], UsageFrequency::Rare, "rfc [legacy]", proxy_types)
            .default("rfc")
            .help("Grid proxies that are accepted. `legacy` are those of the time before RFC 3820.")
            .example("rfc legacy"),
        Directive::new(&["gsi.minrsa"], UsageFrequency::Rare, "bits", key_bits)
            .default("2048")
            .help("Minimum size of RSA keys in certificates and proxies of clients.")
            .example("3072"),
        Directive::new(
            &["gsi.crlsource"],
            UsageFrequency::Rare,
            "{allow|deny} {loopback|linklocal|private|pattern}…",
            list_sources,
        )
        .default("all but loopback, link-local and private networks in which this server is not")
        .help(
            "Servers from which `-crl:use,updt` and `-crl:require,updt` of gsi download revocation lists, by name or \
             address; several of these directives accumulate, as those of `scalla.tpcsource`. The address of the \
             actual connection is checked, also after a redirect.",
        )
        .example("allow crl.example.org"),
        Directive::new(&["gsi.compat"], UsageFrequency::Rare, "olddh pattern", old_clients)
            .default("none")
            .help("Hosts whose clients of XRootD before 4.9 may log in by gsi without a signed key agreement, by name or \
                   address (`*` stands for any text); several of these directives accumulate. A listed host that \
                   is a server can log in as a user who logs in there, signatures do not stop attackers on the way, and \
                   nothing is delegated.")
            .example("olddh *.old.example.org"),
        Directive::new(&["voms.mapfile"], UsageFrequency::Rare, "path", map_file)
            .default("none")
            .help("File that maps groups of VOMS to users: lines `\"/VO/GROUP/Role=ROLE/Capability=NULL\" USER`, in \
                   which `*` stands for any text of an element and `/*` at the end for any further ones. It is used \
                   with `-vomsat` of gsi, for clients that the grid map does not name.")
            .example("/etc/grid-security/voms-mapfile"),
        Directive::idle(&["voms.trace"], UsageFrequency::Rare, "{none|all|debug|info|warning|error}…")
            .default("none")
            .help("Not needed: the debug log has the reasons why attributes are not used.")
            .example("all"),
        Directive::idle(&["auth.trace"], UsageFrequency::Rare, "[option]…")
            .default("none")
            .help("Not used by XRootD either.")
            .example("all"),
        Directive::new(&["acc.authdb"], UsageFrequency::Most, "path", authdb)
            .default("/etc/xrootd/authdb, or /opt/xrd/etc/Authfile if that does not exist")
            .help("File of access rules; see [authorization.md](authorization.md). The server does not start with a \
                   file that has an error.")
            .example("/etc/xrootd/authdb"),
        Directive::new(&["acc.authrefresh"], UsageFrequency::Common, "time", refresh)
            .default("12h")
            .help("Interval at which the server reads a changed rule file again, at least 60s. `scalla admin reload` \
                   reads it at once. A file with an error leaves the earlier rules in force.")
            .example("1h"),
        Directive::new(&["acc.audit"], UsageFrequency::Common, "{none|deny|grant}…", audit)
            .default("none")
            .help("Decisions that are logged, with the positions of the deciding rules.")
            .example("deny"),
        Directive::new(&["acc.encoding"], UsageFrequency::Rare, "[space c] [pct path]", encoding)
            .default("paths and names as written")
            .help("Spelling of the rule file: `space` sets a character that stands for a blank in names, `pct path` \
                   decodes `%XX` in paths.")
            .example("space + pct path"),
        Directive::new(&["acc.spacechar"], UsageFrequency::Rare, "c", space_character)
            .default("none")
            .help("Character that stands for a blank in names of the rules; `acc.encoding space`.")
            .example("+"),
        Directive::new(&["acc.pathmatch"], UsageFrequency::Rare, "{component|prefix}", path_match)
            .default("component")
            .help("Paths that a rule path covers with what it grants. `component`: `/data` covers `/data` and \
                   `/data/x`. `prefix`, as in XRootD: also `/data2`. XRootD does not have this directive.")
            .example("prefix"),
        Directive::new(&["acc.gidlifetime"], UsageFrequency::Rare, "time", lookup_lifetime)
            .default("12h")
            .help("Time after which the netgroups of the rules are looked up again, at least 60s.")
            .example("1h"),
        Directive::idle(&["acc.gidretran"], UsageFrequency::Rare, "gid…")
            .default("none")
            .help("Group ids that are ignored. The groups of a client come from its authentication, not from the \
                   accounts of this host.")
            .example("100 101"),
        Directive::new(&["acc.nisdomain"], UsageFrequency::Rare, "domain", netgroup_domain)
            .default("all domains")
            .help("Domain of netgroups.")
            .example("example.org"),
        Directive::idle(&["acc.pgo"], UsageFrequency::Rare, "(flag)")
            .default("off")
            .help("Uses only the primary group of a user; see acc.gidretran."),
    ],
};
