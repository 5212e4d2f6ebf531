#compdef scalla xrdcp xrdcopy xrdfs
# Completion of scalla, xrdcp, xrdcopy and xrdfs for zsh.
_scalla_complete() {
    local program=${words[1]} urls line word about
    local -a typed whole open whole_shown open_shown
    urls=$(fc -ln 1 2>/dev/null | grep -oE 'x?roots?://[^/[:space:]]+' | tail -n 200)
    [[ ${program:t} == scalla* ]] || program=scalla
    typed=("${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}")
    while IFS=$'\t' read -r word about; do
        line=$word
        [[ -n $about ]] && line="$word  -- $about"
        if [[ $word == *[/:] ]]; then
            open+=("$word"); open_shown+=("$line")
        else
            whole+=("$word"); whole_shown+=("$line")
        fi
    done < <(SCALLA_COMPLETE_URLS=$urls command ${(Q)program} complete zsh -- "${typed[@]}" 2>/dev/null)
    (( $#open )) && compadd -S '' -l -d open_shown -a open
    (( $#whole )) && compadd -l -d whole_shown -a whole
    return 0
}
if [[ ${funcstack[1]} == _scalla ]]; then
    _scalla_complete "$@"
else
    compdef _scalla_complete scalla xrdcp xrdcopy xrdfs
fi
