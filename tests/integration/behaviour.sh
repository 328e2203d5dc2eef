# The checks of one behaviour, in the booted machine: bash behaviour.sh BEHAVIOUR FILE. What they use is in tests/boot/guest/functions.
readonly behaviour=$1 file=$2 place=/boot-test/behaviours/$1
. ./functions

# The line of the behaviour's file from which a check is called.
line() {
    local at
    for at in "${!BASH_SOURCE[@]}"; do
        if [ "${BASH_SOURCE[$at]}" = "$place/$file" ]; then echo "${BASH_LINENO[$((at - 1))]}" && break; fi
    done
}

report() { # ok|FAIL NAME DETAIL
    [ "$1" = ok ] || failed=yes
    printf 'CHECK %s %s: %s:%s: %s: %s\n' "$1" "$behaviour" "$file" "$(line)" "$2" \
        "$(printf '%s' "$3" | tr '\n' '|' | cut -c1-600)" >&3
}

# logged TEXT, not_logged TEXT: whether cloud-init.log has the text.
logged() { check "logged: $1" grep -qF -- "$1" /var/log/cloud-init.log; }
not_logged() { equal "not logged: $1" "" "$(grep -F -- "$1" /var/log/cloud-init.log)"; }
# contains NAME FILE TEXT: whether the file has the text.
contains() { check "$1" grep -qF -- "$3" "$2"; }

# Of a file that does not parse, the rest is not run.
bash -n "$place/$file" || exit
. "$place/$file"
echo "CHECK done $behaviour" >&3
[ -z "$failed" ]
