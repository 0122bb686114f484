# SPDX-License-Identifier: Apache-2.0
# Reads the --help of `owner`; prints its options and verbs as lines of fields that tabs separate.
function flush() {
    if (name != "")
        printf "OPTION\t%s\t%s\t%s\t%s\t%s\n", owner, letter, name, value, help
    name = ""
}
/^Verbs:/ { verbs = 1; next }
verbs && /^  [a-z]/ { help = $0; sub(/^ +[^ ]+ +/, "", help); printf "VERB\t%s\t%s\t%s\n", owner, $1, help; next }
/^ +(-[a-zA-Z], )?--[a-z]/ {
    verbs = 0
    flush()
    line = $0
    sub(/^ +/, "", line)
    letter = ""
    if (line ~ /^-[a-zA-Z], /) {
        letter = substr(line, 2, 1)
        line = substr(line, 5)
    }
    split(line, word, " ")
    name = substr(word[1], 3)
    line = substr(line, length(word[1]) + 1)
    value = ""
    if (line ~ /^ [^ ]/) { # one space: the value's name; more: the help
        split(line, word, " ")
        value = word[1]
        line = substr(line, length(value) + 2)
    }
    sub(/^ +/, "", line)
    help = line
    next
}
name != "" && /^                / {
    line = $0
    sub(/^ +/, "", line)
    help = help (help == "" ? "" : " ") line
    next
}
{ flush(); if ($0 == "") verbs = 0 }
END { flush() }
