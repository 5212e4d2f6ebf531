# Completion of scalla, xrdcp, xrdcopy and xrdfs for fish.
function __scalla_complete
    set -l typed (commandline -opc)
    set -l program scalla
    string match -q 'scalla*' -- (basename -- $typed[1]); and set program $typed[1]
    set -lx SCALLA_COMPLETE_URLS (history search --contains '://' -n 200 2>/dev/null | string match -r -a 'x?roots?://[^/\s]+' | string collect)
    command $program complete fish -- $typed (commandline -ct | string unescape) 2>/dev/null
end
for program in scalla xrdcp xrdcopy xrdfs
    complete -c $program -f -a '(__scalla_complete)'
end
