# SPDX-License-Identifier: Apache-2.0
# Makes bash's completion of table.awk's lines.
BEGIN { FS = "\t"; program["cistern"]; program["cisternd"]; program["cistern-keeper"] }
$1 == "VERB" { verbs = verbs " " $3 }
$1 == "OPTION" {
    words[$2] = words[$2] " --" $4 ($3 == "" ? "" : " -" $3)
    if ($5 != "")
        values = values (values == "" ? "" : "|") "--" $4
}
END {
    print "# Completion of cistern, cisternd and cistern-keeper for bash; generated from their --help.\n_cistern()\n{"
    print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb= known= i"
    print "    COMPREPLY=()\n    case $before in\n    " values ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n    esac"
    print "    case ${COMP_WORDS[0]##*/} in"
    for (owner in words)
        if (owner !~ / / && owner != "cistern")
            printf "    %s) known=\"%s\" ;;\n", owner, substr(words[owner], 2)
    print "    *)\n        known=\"" substr(words["cistern"], 2) "\""
    print "        for ((i = 1; i < COMP_CWORD; i++)); do\n            case ${COMP_WORDS[i]} in"
    n = split(substr(verbs, 2), verb, " ")
    for (i = 1; i <= n; i++)
        printf "            %s) verb=%s known+=\" %s\"; break ;;\n", verb[i], verb[i], substr(words["cistern " verb[i]], 2)
    print "            esac\n        done\n        [ -n \"$verb\" ] || known+=\"" verbs "\" ;;\n    esac"
    print "    if [[ $word == -* || ( -z $verb && ${COMP_WORDS[0]##*/} == cistern ) ]]; then"
    print "        COMPREPLY=($(compgen -W \"$known\" -- \"$word\"))\n    else"
    print "        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}"
    print "complete -o filenames -F _cistern cistern cisternd cistern-keeper"
}
