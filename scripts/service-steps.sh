#!/bin/bash
# service-steps.sh: what an operator does with the package, from the installation to the removal, in a
# Debian that check-service.sh has booted. It ends at the first step that goes wrong.
set -euo pipefail

step() { echo "== $*"; }
fail() { echo "FAIL: $*"; journalctl --no-pager -n 40 -u 'xpyd*' -u 'sim-*'; exit 1; }
main() { systemctl show --property=MainPID --value "${1:-xpyd}"; }
restarts() { systemctl show --property=NRestarts --value xpyd; }
# await WHAT COMMAND…: until the command succeeds, for at most 60 s.
await() {
  local what=$1
  shift
  for _ in $(seq 300); do
    "$@" && return
    sleep 0.2
  done
  fail "not $what after 60 s"
}
# answers PORT: a client gets a whole answer.
answers() {
  { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
  local body='{"model":"sim","prompt":"hello there","max_tokens":5,"stream":true}'
  printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
  grep -q '\[DONE\]' <&3
  local status=$?
  exec 3>&-
  return $status
}
# refuses PORT: a client without a key gets 401.
refuses() {
  { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
  printf 'GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3
  grep -q '^HTTP/1.1 401 ' <&3
  local status=$?
  exec 3>&-
  return $status
}
load() { # RESULT SECONDS: streams of two seconds, 10 a second
  xpyd bench serve --url http://127.0.0.1:8080 --input-len 64 --output-len 100 --rate 10 --max-lateness 0 --num-prompts $(($2 * 10)) --out "$1" >"$1.log" 2>&1
}
unbroken() { # RESULT: no request has failed
  local failed done
  failed=$(grep -h -o '"failed":[ ]*[0-9]*' -r "$1" | head -n 1 | tr -dc 0-9)
  done=$(grep -h -o '"completed":[ ]*[0-9]*' -r "$1" | head -n 1 | tr -dc 0-9)
  [ "$failed" = 0 ] && [ "${done:-0}" -ge 100 ] || { cat "$1.log"; fail "$failed requests failed, $done did not"; }
  echo "   $done requests, none failed"
}

step "install: nothing starts"
dpkg -i /xpyd.deb | grep -q 'systemctl enable --now xpyd' || fail "the package does not say how to start"
! systemctl --quiet is-active xpyd || fail "the service runs without engines"

step "start over two simulated engines"
systemd-run --quiet --unit=sim-p xpyd sim --role prefill --listen 127.0.0.1:8100
systemd-run --quiet --unit=sim-d xpyd sim --role decode --listen 127.0.0.1:8200 --side-channel 127.0.0.1:5601 --token-latency 20ms
printf 'prefill: ["http://127.0.0.1:8100"]\ndecode: ["http://127.0.0.1:8200"]\n' >/etc/xpyd/config.yaml
systemctl --quiet enable --now xpyd
await "an answer" answers 8080
[ "$(stat -c %U "/proc/$(main)")" = xpyd ] || fail "it runs as $(stat -c %U "/proc/$(main)")"

step "reload; a faulty file changes nothing"
cp /etc/xpyd/config.yaml /etc/xpyd/good
echo 'prefil: []' >>/etc/xpyd/config.yaml
! systemctl reload xpyd 2>/dev/null || fail "a faulty file is reloaded"
cp /etc/xpyd/good /etc/xpyd/config.yaml
systemctl reload xpyd

step "keys as credentials: an answer needs one; reload; a faulty file changes nothing"
mkdir -p /etc/systemd/system/xpyd.service.d
printf '[Service]\nLoadCredential=clients:/etc/xpyd/clients.keys\nEnvironment=XPYD_API_KEY_FILE=%%d/clients\n' >/etc/systemd/system/xpyd.service.d/test.conf
echo a-key-of-the-steps | install -m 600 /dev/stdin /etc/xpyd/clients.keys
systemctl daemon-reload
systemctl restart xpyd
await "a refusal" refuses 8080
systemctl reload xpyd || fail "with keys as credentials there is no reload"
echo 'prefil: []' >>/etc/xpyd/config.yaml
! systemctl reload xpyd 2>/dev/null || fail "a faulty file is reloaded"
cp /etc/xpyd/good /etc/xpyd/config.yaml
refuses 8080 || fail "after the reload clients need no key"
rm -r /etc/systemd/system/xpyd.service.d
systemctl daemon-reload
systemctl restart xpyd
await "an answer" answers 8080

step "a second instance"
sed '$ a listen: 127.0.0.1:9080\nadmin: 127.0.0.1:9081' /etc/xpyd/good >/etc/xpyd/two.yaml
systemctl --quiet enable --now xpyd@two
await "an answer of xpyd@two" answers 9080

step "upgrade under load"
first=$(main) first_two=$(main xpyd@two)
load /tmp/upgrade 20 &
sleep 5
dpkg -i /xpyd.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; fail "dpkg -i"; }
[ "$(main)" != "$first" ] && [ "$(main xpyd@two)" != "$first_two" ] || { cat /tmp/dpkg; fail "a service runs the program before this one"; }
wait
unbroken /tmp/upgrade
await "gone: the process before the upgrade" test ! -e "/proc/$first"
[ "$(restarts)" = 0 ] || fail "systemd restarted it"

step "an upgrade that cannot start leaves the old process"
second=$(main)
echo 'prefil: []' >>/etc/xpyd/config.yaml
sed 's/seq 40/seq 5/' /var/lib/dpkg/info/xpyd.postinst | sh -s configure 0 >/tmp/dpkg 2>&1
grep -q 'still runs the version before' /tmp/dpkg || { cat /tmp/dpkg; fail "the package does not say that it still runs"; }
[ "$(main)" = "$second" ] && answers 8080 || fail "the process before is gone"
cp /etc/xpyd/good /etc/xpyd/config.yaml

step "watchdog: a process that lives is left alone, also after a hand-over"
mkdir -p /etc/systemd/system/xpyd.service.d
printf '[Service]\nWatchdogSec=3\nTimeoutAbortSec=2\nRestartSec=0\n' >/etc/systemd/system/xpyd.service.d/test.conf
systemctl daemon-reload
systemctl restart xpyd
third=$(main)
sleep 5
[ "$(main)" = "$third" ] || fail "the watchdog ended a process that lives"
kill -USR2 "$third"
await "handed over" sh -c "[ \$(systemctl show --property=MainPID --value xpyd) != $third ]"
fourth=$(main)
sleep 5
[ "$(main)" = "$fourth" ] && [ "$(restarts)" = 0 ] || fail "the watchdog ended the successor"

step "watchdog: a process that hangs is restarted"
kill -STOP "$fourth"
await "restarted" sh -c "[ \$(systemctl show --property=NRestarts --value xpyd) = 1 ]"
await "an answer" answers 8080
journalctl --no-pager -u xpyd | grep -qi 'watchdog timeout' || fail "the journal does not name the watchdog"

step "a crash is restarted, with what each goroutine did in the journal"
kill -ABRT "$(main)"
await "restarted" sh -c "[ \$(systemctl show --property=NRestarts --value xpyd) = 2 ]"
await "an answer" answers 8080
journalctl --no-pager -u xpyd | grep -q '^.*goroutine 1 ' || fail "the journal has no goroutines"

step "a wrong configuration is not restarted"
echo 'prefil: []' >>/etc/xpyd/config.yaml
! systemctl restart xpyd 2>/dev/null || fail "it starts with a wrong configuration"
sleep 1
[ "$(systemctl show --property=ActiveState --value xpyd)" = failed ] || fail "systemd tries again"
cp /etc/xpyd/good /etc/xpyd/config.yaml
systemctl restart xpyd

step "remove"
dpkg -r xpyd >/dev/null
! systemctl --quiet is-active xpyd xpyd@two || fail "a service runs without the package"
! pgrep -f 'xpyd serve' >/dev/null 2>&1 || fail "a process runs without the package"
[ -e /etc/xpyd/config.yaml ] || fail "a removal takes the configuration away"
echo "== all steps passed"
