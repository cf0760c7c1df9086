#!/bin/sh
# Plays the process that makes memory: makes a file for the name, in `names` beside the
# link by which it was called. Waits while there is a file `.held`, fails where there
# is one `.full`.
cd "$(dirname "$0")/names" || exit 3
for word; do case $word in --name=*) name=${word#--name=};; esac; done
while [ -e .held ]; do sleep 0.05; done
if [ -e .full ]; then
    echo '{"code":"GPU_OOM","message":"cuMemCreate: OUT_OF_MEMORY"}'
    exit 1
fi
name=$(printf %s "$name" | tr / %)
tr -d - </proc/sys/kernel/random/uuid >.new$$
# Whole or not at all, and only where there is none.
if ln .new$$ "$name" 2>/dev/null; then rm .new$$; exit 0; fi
rm .new$$
echo '{"code":"EXISTS","message":"there is one already"}'
exit 1
