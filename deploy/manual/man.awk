# SPDX-License-Identifier: Apache-2.0
# Makes the --help of `owner` a part of a man page: a page's head for a program, a subsection for a verb.
function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}
BEGIN { is_verb = owner ~ / / }
/^Usage: / { usage = substr($0, 8); in_usage = 1; next }
in_usage && /^ / { sub(/^ +/, ""); usage = usage "\n" $0; next }
in_usage {
    in_usage = 0
    if (is_verb) {
        name = owner
        sub(/^[^ ]* /, "", name)
        printf ".SS %s\n", roff(name)
    }
}
!begun && /[^ ]/ && !is_verb { # the first paragraph's first sentence is the page's name
    first = $0
    sub(/ *[.:;,(].*/, "", first)
    printf ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(owner), roff(tolower(substr(first, 1, 1)) substr(first, 2))
}
!begun && /[^ ]/ {
    n = split(usage, row, "\n")
    for (i = 1; i <= n; i++)
        printf "%s\n%s\n", roff(row[i]), i < n ? ".br" : (is_verb ? ".PP" : ".SH DESCRIPTION")
    begun = 1
}
/^Flags:$/ || /^Verbs:$/ { next }
/^$/ { if (code) print ".fi\n.RE"; code = 0; if (begun) print ".PP"; next }
/^ +(-[a-zA-Z], )?--[a-z]/ {
    if (code)
        print ".fi\n.RE"
    code = 0
    line = $0
    sub(/^ +/, "", line)
    at = match(line, /   *[^ ]/)
    left = at ? substr(line, 1, at - 1) : line
    right = at ? substr(line, at) : ""
    sub(/^ +/, "", right)
    if (!at && match(line, /--[a-z-]+ [A-Z][^ ]* /)) { # a long name leaves one space before its help
        left = substr(line, 1, RSTART + RLENGTH - 2)
        right = substr(line, RSTART + RLENGTH)
    }
    printf ".TP\n.B %s\n%s\n", roff(left), right == "" ? "\\&" : roff(right)
    next
}
/^                / { sub(/^ +/, ""); print roff($0); next } # the help of a long option
/^  / { if (!code) print ".RS\n.nf"; code = 1; print roff(substr($0, 3)); next }
{ print roff($0) }
END { if (code) print ".fi\n.RE" }
