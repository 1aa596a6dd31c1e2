# Three nodes of Patroni with etcd, and a PgBouncer that follows the leader. Prints their folder, then runs
# each line of its input as a command and answers with a line. When the input ends all of it ends.
#
# Where CUTS is set this is the first process of namespaces of its own (network, mounts, processes): each node
# has a network of its own with a line to here, which can be cut, and nothing outlives this shell. It must be
# bash, which buries the servers that Patroni leaves to the first process: Patroni waits for them to be gone.
set -eu
cd /
dir=$(mktemp -d /tmp/loopstore-fleet.XXXXXX)
log=$dir/log
touch "$log"
[ -z "$OWNER" ] || chown "$OWNER" "$dir" "$log"
as_owner() {
    if [ -n "$OWNER" ]; then
        exec setpriv --reuid="$OWNER" --regid="$OWNER" --init-groups "$@"
    fi
    exec "$@"
}
end() {
    trap - EXIT
    exec >/dev/null 2>&1
    for i in 1 2 3; do kill9 $i; done
    kill -9 $etcd $(cat "$dir/b/pid") || true
    rm -rf "$dir"
}
trap end EXIT

if [ -n "$CUTS" ]; then
    ip link set lo up
    mkdir -p /run/netns
    mount -t tmpfs tmpfs /run/netns
    echo 1 > /proc/sys/net/ipv4/ip_forward
    hub=10.77.0.1
    ip addr add $hub/32 dev lo
    for i in 1 2 3; do
        ip netns add n$i
        ip link add v$i type veth peer name e0 netns n$i
        ip addr add 10.77.$i.1/30 dev v$i
        ip link set v$i up
        ip -n n$i link set lo up
        ip -n n$i addr add 10.77.$i.2/30 dev e0
        ip -n n$i link set e0 up
        ip -n n$i route add default via 10.77.$i.1
    done
    address_of() { echo 10.77.$1.2; }
    at_node() {
        node=$1
        shift
        exec ip netns exec n$node setpriv --reuid="$OWNER" --regid="$OWNER" --init-groups "$@"
    }
else
    hub=127.0.0.1
    address_of() { echo 127.0.0.1; }
    at_node() { shift; as_owner "$@"; }
fi
port_of() { eval echo \$PORT$1; }
rest_of() { eval echo \$REST$1; }

(umask 022
mkdir "$dir/b" "$dir/s1" "$dir/s2" "$dir/s3"
[ -z "$OWNER" ] || chown "$OWNER" "$dir/b" "$dir/s1" "$dir/s2" "$dir/s3"
chmod 755 "$dir"
printf '"postgres" ""\n' > "$dir/users"

# What Patroni calls when the role of a node changes, which has PgBouncer follow.
cat > "$dir/follow" <<FOLLOW
case "\$4" in
    master | primary | promoted)
        sed "s/@HOST@/\$1/; s/@PORT@/\$2/" "$dir/pgbouncer.in" > "$dir/b/ini.\$\$"
        mv "$dir/b/ini.\$\$" "$dir/b/ini"
        kill -HUP "\$(cat "$dir/b/pid")"
        ;;
esac
FOLLOW
cat > "$dir/pgbouncer.in" <<INI
[databases]
kept = host=@HOST@ port=@PORT@ dbname=agents pool_mode=session pool_size=60
shared = host=@HOST@ port=@PORT@ dbname=agents pool_mode=transaction pool_size=4
[pgbouncer]
unix_socket_dir = $dir/b
listen_port = $BOUNCER
auth_type = trust
auth_file = $dir/users
pidfile = $dir/b/pid
logfile = $dir/b/log
max_client_conn = 300
server_login_retry = 1
server_connect_timeout = 2
query_wait_timeout = 5
server_fast_close = 1
tcp_keepalive = 1
tcp_keepidle = 1
tcp_keepintvl = 1
tcp_keepcnt = 3
tcp_user_timeout = 3000
INI
for i in 1 2 3; do
    cat > "$dir/n$i.yml" <<NODE
scope: fleet
name: n$i
restapi: {listen: "$(address_of $i):$(rest_of $i)", connect_address: "$(address_of $i):$(rest_of $i)"}
etcd3: {host: "$hub:$ETCD"}
bootstrap:
  dcs:
    ttl: $TTL
    loop_wait: 1
    retry_timeout: 2
    primary_start_timeout: 0
    maximum_lag_on_failover: 1048576
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {max_connections: 150}
  initdb:
    - encoding: UTF8
    - locale: C.UTF-8
    - no-sync
postgresql:
  listen: "$(address_of $i):$(port_of $i)"
  connect_address: "$(address_of $i):$(port_of $i)"
  data_dir: $dir/s$i/data
  bin_dir: $BIN
  pgpass: $dir/s$i/pgpass
  use_unix_socket: true
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: postgres}
    replication: {username: postgres}
  parameters:
    unix_socket_directories: $dir/s$i
    fsync: "off"
    shared_buffers: 32MB
    wal_sender_timeout: 3s
    wal_receiver_timeout: 3s
    tcp_user_timeout: 3000
  pg_hba:
    - local all all trust
    - host all all 0.0.0.0/0 trust
    - host replication all 0.0.0.0/0 trust
  callbacks:
    on_start: /bin/sh $dir/follow $(address_of $i) $(port_of $i)
    on_role_change: /bin/sh $dir/follow $(address_of $i) $(port_of $i)
watchdog: {mode: "off"}
NODE
done
sed "s/@HOST@/$hub/; s/@PORT@/1/" "$dir/pgbouncer.in" > "$dir/b/ini"
[ -z "$OWNER" ] || chown "$OWNER" "$dir/b/ini")

(as_owner "$PGBOUNCER" -q "$dir/b/ini" >> "$log" 2>&1 < /dev/null) &
(as_owner "$ETCD_BIN" --data-dir "$dir/b/etcd" --listen-client-urls "http://$hub:$ETCD" \
    --advertise-client-urls "http://$hub:$ETCD" --listen-peer-urls "http://127.0.0.1:$PEER" \
    --initial-advertise-peer-urls "http://127.0.0.1:$PEER" --initial-cluster "default=http://127.0.0.1:$PEER" \
    --log-level error >> "$log" 2>&1 < /dev/null) &
etcd=$!

# Starts a node, or starts it again.
start() {
    (at_node $1 "$PATRONI" "$dir/n$1.yml" >> "$dir/log.$1" 2>&1 < /dev/null) &
    eval patroni$1=$!
}
postmaster() { head -n 1 "$dir/s$1/data/postmaster.pid"; }
processes() {
    eval echo \$patroni$1
    main=$(postmaster $1 2>/dev/null) || return 0
    echo $main
    pgrep -P $main || true
}
# All of it dies at once. What ended by itself meanwhile is no failure.
kill9() { kill -9 $(processes $1) || true; }
# The service is stopped, and the leader hands over.
stop() { eval kill \$patroni$1; eval wait \$patroni$1 || true; }
# It stands still, as a machine that is paused, until a watchdog resets it. Without one it would go on as a
# leader where it stopped, which Patroni cannot prevent by itself.
freeze() { kill -STOP $(processes $1) || true; }
reset() { kill9 $1; start $1; }
# Nothing that is sent arrives, and nobody is told.
cut() {
    ip neigh replace 10.77.$1.2 lladdr 02:00:00:00:00:99 dev v$1 nud permanent
    ip -n n$1 neigh replace 10.77.$1.1 lladdr 02:00:00:00:00:99 dev e0 nud permanent
}
heal() {
    ip neigh del 10.77.$1.2 dev v$1
    ip -n n$1 neigh del 10.77.$1.1 dev e0
}
# Whether a node may take over: one that follows synchronously, and is noted in etcd as one that does.
may_fail_over() {
    for i in 1 2 3; do
        if (
            exec 3<> "/dev/tcp/$(address_of $i)/$(rest_of $i)"
            printf 'GET /synchronous HTTP/1.0\r\n\r\n' >&3
            read -r status <&3
            [[ $status == *" 200 "* ]]
        ); then
            return 0
        fi
    done
    return 1
}
switch_over() { (as_owner "$PATRONICTL" -c "$dir/n$1.yml" switchover fleet --leader n$1 --force); }
# Commits wait for no standby from now on.
be_asynchronous() {
    (as_owner "$PATRONICTL" -c "$dir/n1.yml" edit-config fleet --force -q -s synchronous_mode=false)
}

for i in 1 2 3; do start $i; done
echo "$dir"
while read -r line; do
    if $line >> "$log" 2>&1 < /dev/null; then echo done; else echo failed; fi
done
