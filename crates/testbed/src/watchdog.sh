# Ends a testbed. Standard input is a pipe that only the testbed's owner holds: its end means that
# the owner is done or dead. Every process of the testbed carries the mark in its environment, which
# a process that got a dead one's pid does not.
# Arguments: the testbed's folder, the folder of its logs. The word "keep" on standard input keeps
# the logs.
dir=$1
logs=$2
keep=
trap '' HUP INT TERM
while read -r word; do keep=$word; done

marked() {
    grep -lszxF -- "CARRICK_TESTBED=$dir" /proc/[0-9]*/environ | cut -d/ -f3
}

# Two empty looks in a row: a child of the owner may have been between fork and exec at the first.
empty=0
rounds=0
while [ "$empty" -lt 2 ] && [ "$rounds" -lt 200 ]; do
    pids=$(marked)
    if [ -n "$pids" ]; then
        empty=0
        kill -9 $pids 2>/dev/null
    else
        empty=$((empty + 1))
    fi
    rounds=$((rounds + 1))
    sleep 0.05
done

# The host-path provisioner's folders are at a fixed place, which control planes of others may use
# too: ours are those that our etcd knows.
volumes=/tmp/hostpath_pv
if [ -d "$volumes" ]; then
    grep -aohrE "$volumes/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}" "$dir"/*/etcd 2>/dev/null |
        sort -u |
        while read -r volume; do rm -rf -- "$volume"; done
    rmdir "$volumes" 2>/dev/null
fi

if [ "$keep" = keep ]; then
    find "$dir" -mindepth 1 -maxdepth 1 ! -path "$logs" -exec rm -rf {} +
    rmdir "$dir" 2>/dev/null
else
    rm -rf -- "$dir" "$logs"
fi
exit 0
