//! The usage and the help of `xrdcp`.

pub(super) const USAGE: &str = "
Usage:   xrdcp [<options>] <src> [<src> [. . .]] <dest>

Options: [--allow-http] [--cksum <args>] [--coerce] [--continue]
         [--debug <lvl>] [--dynamic-src] [--force] [--help]
         [--infiles <fn>] [--license] [--nopbar] [--notlsok]
         [--parallel <n>] [--posc] [--proxy <host>:<port>]
         [--recursive] [--retry <n>] [--retry-policy <force|continue>]
         [--rm-bad-cksum] [--server] [--silent] [--sources <n>]
         [--streams <n>] [--tlsmetalink] [--tlsnodata]
         [--tpc [delegate] {first|only}] [--verbose] [--version]
         [--xattr] [--xrate <rate>] [--xrate-threshold <rate>]
         [--zip <file>] [--zip-append] [--zip-mtln-cksum]

<src>:   [[x]root[s]://<host>[:<port>]/]<path> | -
<dest>:  [[x]root[s]://<host>[:<port>]/]<path> | -
";

pub(super) const HELP: &str = "
-A | --allow-http             no effect, because HTTP URLs are always taken
-C | --cksum <args>           <type>[:{<value>|print|source}], with <type> adler32, crc32,
                              crc32c, md5, zcrc32 or auto: compares both ends, or the
                              target with <value>, or prints that of the target or source
-F | --coerce                 ignores locks
     --continue               completes what an earlier copy left
-d | --debug <lvl>            detail of messages, 0 to 3
-Z | --dynamic-src            the source may change its size
-f | --force                  overwrites
-h | --help                   prints this
-I | --infiles <fn>           also copies what the lines of this file name
-H | --license                prints the licence
-N | --nopbar                 shows no progress
     --notlsok                goes on without TLS where a server has none
     --parallel <n>           so many files at once
-P | --posc                   the target stays only if it is closed successfully
-D | --proxy <host>:<port>    uses a SOCKS4 proxy
-r | --recursive              copies directories with everything below
-t | --retry <n>              tries a failed copy so often again
     --retry-policy <policy>  and then begins again (force) or goes on (continue)
     --rm-bad-cksum           removes a target whose checksum is wrong
     --server                 runs as part of a server
-s | --silent                 prints nothing but errors
-y | --sources <n>            reads from so many copies at once
-S | --streams <n>            uses so many connections for the data
     --tlsmetalink            uses TLS for what metalinks name
-E | --tlsnodata              data goes without TLS
-T | --tpc <args>             the servers copy from each other: first, or the copy fails: only
-v | --verbose                prints more
-V | --version                prints the version
     --xattr                  keeps extended attributes
-X | --xrate <rate>           copies no faster than that; k, m and g may follow
     --xrate-threshold <rate> looks for another source below that
-z | --zip <file>             copies this member of a ZIP archive
     --zip-append             adds the file to a ZIP archive
     --zip-mtln-cksum         takes the checksum of a metalink for a member

Legacy options:     [-adler] [-DI<var> <val>] [-DS<var> <val>] [-np]
                    [-md5] [-OD<cgi>] [-OS<cgi>] [-version] [-x]
";
