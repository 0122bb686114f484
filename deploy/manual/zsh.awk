# SPDX-License-Identifier: Apache-2.0
# Makes zsh's completion of table.awk's lines.
function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/'/, "'\\''", text)
    gsub(/\[/, "\\[", text)
    gsub(/\]/, "\\]", text)
    gsub(/:/, "\\:", text)
    return text
}
BEGIN { FS = "\t" }
$1 == "VERB" { verb[++verbs] = $3; about[$3] = $4 }
$1 == "OPTION" {
    rest = "[" quoted($6) "]" ($5 == "" ? "" : ":" quoted($5) ":_files") "'"
    words[$2] = words[$2] " \\\n    '*--" $4 ($5 == "" ? "" : "=") rest ($3 == "" ? "" : " \\\n    '*-" $3 rest)
}
END {
    print "#compdef cistern cisternd cistern-keeper\n# Generated from the programs' --help.\nlocal verb word"
    print "case $service in"
    for (owner in words)
        if (owner !~ / / && owner != "cistern")
            printf "%s)\n    _arguments -s%s\n    return ;;\n", owner, words[owner]
    print "esac\nfor word in ${words[2,CURRENT-1]}; do\n    case $word in"
    for (i = 1; i <= verbs; i++)
        printf "    %s) verb=%s; break ;;\n", verb[i], verb[i]
    print "    esac\ndone\ncase $verb in"
    for (i = 1; i <= verbs; i++)
        printf "%s)\n    _arguments -s '1: :' '*:file:_files'%s%s\n    ;;\n", verb[i], words["cistern"], words["cistern " verb[i]]
    print "*)\n    local -a verbs=("
    for (i = 1; i <= verbs; i++)
        printf "    '%s:%s'\n", verb[i], quoted(about[verb[i]])
    printf "    )\n    _describe verb verbs\n    _arguments -s%s\n    ;;\nesac\n", words["cistern"]
}
