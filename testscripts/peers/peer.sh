#!/bin/sh
# Takes locks on Redis as its documentation has it, with redis-cli:
# peer.sh ADDR KEY try|hold|contend. The modes, the exit codes and the critical
# section are those of main.go.
set -eu

addr=$1 key=$2 mode=$3
release='if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("del",KEYS[1])
else
	return 0
end'

cli() { redis-cli -e -u "redis://$addr" "$@"; }

take() {
	token=$(cat /proc/sys/kernel/random/uuid)
	answer=$(cli SET "$key" "$token" NX PX 10000) || exit 1
	[ "$answer" = OK ]
}

release() {
	answer=$(cli EVAL "$release" 1 "$key" "$token") || exit 1
	[ "$answer" = 1 ] || exit 76
}

section() {
	flock -n 9 || echo "overlap: redis-cli" >>faults
	sleep 0.005
	echo x >>redis-cli
}

case $mode in
contend)
	while [ ! -e stop ]; do
		if take; then
			section 9>>guard
			release
		fi
		sleep 0.1
	done
	exit
	;;
esac
take || exit 75
if [ "$mode" = hold ]; then
	echo held
	cat >/dev/null
fi
release
