# SPDX-License-Identifier: Apache-2.0
# Makes fish's completion of table.awk's lines.
function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/'/, "\\'", text)
    return "'" text "'"
}
BEGIN { FS = "\t"; print "# Generated from the programs' --help." }
$1 == "VERB" { print "complete -c cistern -n __fish_use_subcommand -f -a " $3 " -d " quoted($4) }
$1 == "OPTION" {
    n = split($2, word, " ")
    print "complete -c " word[1] (n > 1 ? " -n '__fish_seen_subcommand_from " word[2] "'" : "") " -l " $4 \
        ($3 == "" ? "" : " -s " $3) ($5 == "" ? "" : " -r") " -d " quoted($6)
}
