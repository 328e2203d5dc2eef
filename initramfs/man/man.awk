# A Markdown page as a man page (man(7)). initramfs/man/build runs it, and says what part of Markdown it takes.

# No line of a table is wider than this, in characters: 80 columns without the margin.
BEGIN { WIDTH = 71 }

function fail(what) {
    printf "%s:%d: %s\n", FILENAME, FNR, what >"/dev/stderr"
    failed = 1
    exit 1
}

# Text as roff sees it, without meaning of its own.
function literal(text, i, c, out) {
    out = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\\") c = "\\e"
        else if (c == "-") c = "\\-"
        else if (c == "'") c = "\\(aq"
        else if (c == "`") c = "\\(ga"
        else if (c == "^") c = "\\(ha"
        else if (c == "~") c = "\\(ti"
        out = out c
    }
    return out
}

# Prose between code spans: links and bold text.
function prose(text, at, end, label, out) {
    gsub(/\\\|/, "|", text)
    gsub(/\\/, "\\e", text)
    out = ""
    while (match(text, /\[[^]]*\]\([^)]*\)/)) {
        at = RSTART
        end = RSTART + RLENGTH
        label = substr(text, at + 1, index(substr(text, at), "](") - 2)
        if (label ~ /\([0-9]\)$/) label = "\\fB" substr(label, 1, length(label) - 3) "\\fR" substr(label, length(label) - 2)
        out = out substr(text, 1, at - 1) label
        text = substr(text, end)
    }
    text = out text
    out = ""
    while (match(text, /\*\*[^*]+\*\*/)) {
        out = out substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART + 2, RLENGTH - 4) "\\fR"
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

# A text with code spans in it.
function inline(text, parts, n, i, out) {
    n = split(text, parts, "`")
    if (n && n % 2 == 0) fail("a ` without its end")
    out = ""
    for (i = 1; i <= n; i++) {
        if (i % 2) out = out prose(parts[i])
        else {
            gsub(/\\\|/, "|", parts[i])
            out = out "\\fB" literal(parts[i]) "\\fR"
        }
    }
    return out
}

# The same without any mark, for widths and for what is bold as a whole.
function plain(text) {
    gsub(/\\\|/, "|", text)
    while (match(text, /\[[^]]*\]\([^)]*\)/))
        text = substr(text, 1, RSTART - 1) \
            substr(text, RSTART + 1, index(substr(text, RSTART), "](") - 2) substr(text, RSTART + RLENGTH)
    gsub(/[`]|\*\*/, "", text)
    return text
}

# A line of text: one that begins with a roff control character must not be a request.
function say(text) {
    if (text ~ /^[.']/) text = "\\&" text
    print text
}

# What was gathered, as a paragraph or as an item of a list.
function flush() {
    if (text != "") {
        if (item != "") print item
        else if (!after_heading) print ".PP"
        text = inline(text)
        if (name_section) sub(/ - /, " \\- ", text)
        say(text)
        # No empty lines between the items of a list; one before the first.
        if (item != "" && !in_list) { print ".PD 0"; in_list = 1 }
        after_heading = 0
    }
    text = item = ""
}

function end_list() {
    flush()
    if (in_list) { print ".PD"; in_list = 0 }
}

function end_code() {
    if (in_code) { print ".EE"; print ".RE"; in_code = 0 }
    blank_code = 0
}

function end_all() {
    end_list()
    end_code()
    if (rows) table()
}

# The cells of a table's line, in row[1], row[2], ...; their number.
function cells(line, n, i, c, cell) {
    n = 0
    cell = ""
    for (i = 2; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "|" && substr(line, i - 1, 1) != "\\") {
            gsub(/^ +| +$/, "", cell)
            row[++n] = cell
            cell = ""
        } else cell = cell c
    }
    return n
}

function table(i, j, w, total, format, line) {
    total = 0
    for (j = 1; j <= columns; j++) {
        w = 0
        for (i = 1; i <= rows; i++) if (length(plain(grid[i, j])) > w) w = length(plain(grid[i, j]))
        total += w + 2
    }
    if (total <= WIDTH + 2 && columns > 2) {
        if (!after_heading) print ".PP"
        print ".TS"
        line = format = ""
        for (j = 1; j <= columns; j++) { line = line "lB2 "; format = format "l2 " }
        sub(/2 $/, "", line)
        sub(/2 $/, ".", format)
        print line
        print format
        for (i = 1; i <= rows; i++) {
            line = ""
            for (j = 1; j <= columns; j++) line = line (j > 1 ? "\t" : "") (i == 1 ? literal(plain(grid[i, j])) : inline(grid[i, j]))
            say(line)
        }
        print ".TE"
    } else {
        for (i = 2; i <= rows; i++) entry(i)
    }
    after_heading = 0
    rows = 0
}

# A row as an entry of a list: its first cell, and below it the others; with their columns' heads where there are several.
function entry(i, j, more) {
    if (length(plain(grid[i, 1])) <= WIDTH - 8) {
        print ".TP"
        say("\\fB" literal(plain(grid[i, 1])) "\\fR")
    } else {
        if (i > 2 || !after_heading) print ".PP"
        say("\\fB" literal(plain(grid[i, 1])) "\\fR")
        print ".RS"
    }
    more = 0
    for (j = 2; j <= columns; j++) {
        if (grid[i, j] == "") continue
        if (more++) print ".br"
        say((columns > 2 ? plain(grid[1, j]) ": " : "") inline(grid[i, j]))
    }
    if (!more) print "\\&"
    if (length(plain(grid[i, 1])) > WIDTH - 8) print ".RE"
}

FNR == 1 {
    if ($0 != "# " name "(" section ")") fail("expected the title # " name "(" section ")")
    print "'\\\" t"
    printf ".TH %s %s %s \"prepivot %s\" \"prepivot manual\"\n", toupper(name), section, date, version
    next
}

/^<!--.*-->$/ { next }

/^\|/ {
    end_list()
    end_code()
    n = cells($0)
    if (rows == 0) { columns = n; rule = 1 } else if (rule) {
        if ($0 !~ /^[|:-]+$/ || n != columns) fail("expected the rule below a table's head")
        rule = 0
        next
    } else if (n != columns) fail("expected " columns " cells and got " n)
    rows++
    for (i = 1; i <= n; i++) grid[rows, i] = row[i]
    next
}

rows { table() }

/^##* / {
    end_all()
    if ($1 !~ /^###?$/) fail("a heading of the second or third level was expected")
    name_section = ($0 == "## NAME")
    heading = substr($0, length($1) + 2)
    print ($1 == "##" ? ".SH " toupper(heading) : ".SS " inline(heading))
    after_heading = 1
    next
}

/^    / && text == "" {
    if (!in_code) {
        end_list()
        if (!after_heading) print ".PP"
        print ".RS 4"
        print ".EX"
        in_code = 1
        after_heading = 0
    }
    while (blank_code-- > 0) print ""
    blank_code = 0
    say(literal(substr($0, 5)))
    next
}

/^$/ {
    if (in_code) { blank_code++; next }
    flush()
    next
}

/^- / || /^[0-9]\. / {
    end_code()
    flush()
    item = ($1 == "-" ? ".IP \\(bu 2" : ".IP " $1 " 3")
    text = substr($0, length($1) + 2)
    next
}

/^  +[^ ]/ && item != "" {
    sub(/^ +/, "")
    text = text " " $0
    next
}

/^(```|>|\* |\+ |<| )/ { fail("this part of Markdown is not known: " $0) }

{
    end_code()
    if (item != "" && text != "") fail("a line of a list's item is indented")
    if (text == "") end_list()
    text = text (text == "" ? "" : " ") $0
}

END { if (!failed) end_all() }
