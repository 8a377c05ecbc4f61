package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"xpyd/netio/tlsconf/tlstest"
	"xpyd/router"
)

// load runs Load as a command would, after parsing args.
func load(t *testing.T, args, environ []string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return Load(t.Context(), NewFiles(false), fs, environ)
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the umask does not matter
		t.Fatal(err)
	}
	return path
}

var decodeFlag = []string{"--decode", "http://127.0.0.1:8200"}

func TestConfigPrecedence(t *testing.T) {
	file := writeFile(t, "x.yaml", "decode: [http://f:1]\ntimeouts:\n  dial: 2s\n  prefill: 7s\n  drain: 9s\n", 0o644)
	c, err := load(t,
		[]string{"--config", file, "--timeouts-dial", "4s"},
		[]string{"XPYD_TIMEOUTS_DIAL=3s", "XPYD_TIMEOUTS_PREFILL=8s", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Timeouts.Dial, want.Timeouts.Prefill, want.Timeouts.Drain = 4*time.Second, 8*time.Second, 9*time.Second
	if c.Timeouts != want.Timeouts {
		t.Errorf("flag > environment > file > default: got %+v, want %+v", c.Timeouts, want.Timeouts)
	}
	if !slices.Equal(c.Router.Decode, router.MustEntries("http://f:1")) {
		t.Errorf("decode = %v", c.Router.Decode)
	}
}

// Each key is set once by its flag and once by its variable. Both must arrive.
func TestConfigEveryKeyHasFlagAndVariable(t *testing.T) {
	secret := writeFile(t, "key", "k1\n", 0o600)
	values := map[string]string{
		"string": "x", "duration": "1234ms", "size": "77MiB", "count": "17", "share": "0.5", "bool": "true", "list": "a,b",
		"listen": "127.0.0.1:9", "admin": "127.0.0.1:10", "connector": "nixl", "prefill_policy": "round_robin", "decode_policy": "round_robin",
		"pd.mode": "auto", "kv.release": "reject", "log.level": "debug", "log.format": "console", "api_key_file": secret, "backend_api_key_file": secret, "admin_token_file": secret,
		"prefill": "http://a:1,http://b:2", "engines": "http://g:1,http://g:2", "encode": "http://e:1,http://e:2", "decode": "http://a:1,http://b:2", "limits.body_budget": "2GiB", "siblings": "http://x:8081,https://y:8081", "routing.prefix_block": "1KiB",
		"routes.pass": "/v2/embed,GET /tokenizer_info", "cors.origins": "https://a.example,http://b:3000", "proxy_protocol.from": "10.0.0.7,10.1.0.0/16", "tracing.endpoint": "http://c:4317", "tracing.protocol": "http/protobuf", "headers.timing": "false", "health.eject_for": "2m", "health.eject_max": "1h",
		"decode_only.enabled": "false", "usage.rewrite": "false", "objective.errors": "0.05",
	}
	values["keys_file"] = writeFile(t, "keys.yaml", "keys: [{name: a, key_file: "+secret+"}]\n", 0o600)
	ca := tlstest.NewCA(t)
	pair := ca.Local("xpyd")
	with := map[string][]string{} // what a key needs beside it
	for _, flag := range []string{"tls", "admin-tls", "backend-tls"} {
		section := strings.ReplaceAll(flag, "-", "_")
		values[section+".cert"], values[section+".key"] = pair.Cert, pair.Key
		with[section+".cert"] = []string{"--" + flag + "-key=" + pair.Key}
		with[section+".key"] = []string{"--" + flag + "-cert=" + pair.Cert}
		with[section+".client_ca"] = []string{"--" + flag + "-key=" + pair.Key, "--" + flag + "-cert=" + pair.Cert}
	}
	values["tls.client_ca"], values["admin_tls.client_ca"], values["backend_tls.ca"] = ca.File, ca.File, ca.File
	for _, k := range configKeys() {
		t.Run(k.path, func(t *testing.T) {
			v, ok := values[k.path]
			if !ok {
				v = values[k.unit()]
			}
			for _, given := range []struct{ args, environ []string }{
				{args: []string{"--" + k.flag() + "=" + v}},
				{environ: []string{k.env() + "=" + v}},
			} {
				args := append(given.args, with[k.path]...)
				if k.path != "decode" {
					args = append(args, decodeFlag...)
				}
				c, err := load(t, args, given.environ)
				if err != nil {
					t.Fatal(err)
				}
				want := Config{}
				if err := k.set(&want, v); err != nil {
					t.Fatal(err)
				}
				if got, want := k.text(c), k.text(want); got != want {
					t.Errorf("%v %v: got %s, want %s", given.args, given.environ, got, want)
				}
			}
		})
	}
}

func TestConfigValues(t *testing.T) {
	for _, tc := range []struct {
		name, path string
		args       []string
		environ    []string
		file       string
		want       string
	}{
		{"repeated flag and commas", "prefill", []string{"--prefill", "http://a:1, http://b:2", "--prefill", "http://c:3"}, nil, "", "http://a:1,http://b:2,http://c:3"},
		{"list in the environment", "prefill", nil, []string{"XPYD_PREFILL=http://a:1,http://b:2"}, "", "http://a:1,http://b:2"},
		{"empty list in the environment", "prefill", nil, []string{"XPYD_PREFILL="}, "prefill: [http://a:1]", ""},
		{"weights", "prefill", []string{"--prefill", "http://A:1/  weight=2.50,http://b:2 weight=1"}, nil, "", "http://a:1 weight=2.5,http://b:2"},
		{"GPUs", "prefill", []string{"--prefill", "http://A:1 gpus=4.0,http://b:2 gpus=1 weight=2"}, nil, "", "http://a:1 gpus=4,http://b:2 weight=2 gpus=1"},
		{"weights in the environment", "prefill", nil, []string{"XPYD_PREFILL=http://a:1 weight=2,http://b:2"}, "", "http://a:1 weight=2,http://b:2"},
		{"weights in the file", "prefill", nil, nil, "prefill: ['http://a:1 weight=0.5', 'http://b:2']", "http://a:1 weight=0.5,http://b:2"},
		{"port 80 by default", "prefill", []string{"--prefill", "http://A.example/"}, nil, "", "http://a.example:80"},
		{"IPv6", "prefill", []string{"--prefill", "http://[::1]:8100"}, nil, "", "http://[::1]:8100"},
		{"size in MiB", "limits.body", nil, nil, "limits: {body: 16MiB}", "16MiB"},
		{"size in plain bytes", "limits.body", nil, nil, "limits: {body: 1000}", "1000"},
		{"share", "decode_only.max_share", nil, nil, "decode_only: {max_share: 1}", "1"},
		{"bool flag without value", "pprof", []string{"--pprof"}, nil, "", "true"},
		{"section without keys", "timeouts.dial", nil, nil, "timeouts:\n", "1s"},
		{"key without value", "timeouts.dial", nil, nil, "timeouts:\n  dial:\n", "1s"},
		{"admin off", "admin", nil, []string{"XPYD_ADMIN="}, "", ""},
		{"release off is a text in YAML", "kv.release", nil, nil, "kv: {release: off}", "off"},
		{"short lease shortens the margin", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=600ms"}, "", "100ms"},
		{"long lease keeps the margin", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=10m"}, "", "5s"},
		{"margin given", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=6s", "XPYD_KV_LEASE_MARGIN=5s"}, "", "5s"},
		{"Kubernetes service variables", "listen", nil, []string{
			"XPYD_SERVICE_HOST=10.0.0.1", "XPYD_SERVICE_PORT_HTTP=80", "XPYD_PORT=tcp://10.0.0.1:80", "XPYD_PORT_80_TCP_ADDR=10.0.0.1",
		}, "", ":8080"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(slices.Clone(tc.args), decodeFlag...)
			if tc.file != "" {
				args = append(args, "--config", writeFile(t, "x.yaml", tc.file, 0o644))
			}
			c, err := load(t, args, tc.environ)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range configKeys() {
				if k.path == tc.path && k.text(c) != tc.want {
					t.Errorf("%s = %q, want %q", k.path, k.text(c), tc.want)
				}
			}
		})
	}
}

func TestConfigOtherFileFormats(t *testing.T) {
	for name, text := range map[string]string{
		"x.json": `{"decode":["http://d:1"],"limits":{"body":16777216},"decode_only":{"max_share":0.5}}`,
		"x.toml": "decode = ['http://d:1']\n[limits]\nbody = 16777216\n[decode_only]\nmax_share = 0.5\n",
		"x.conf": "decode: [http://d:1]\nlimits: {body: 16777216}\ndecode_only: {max_share: 0.5}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, nil, []string{"XPYD_CONFIG=" + writeFile(t, name, text, 0o644)})
			if err != nil {
				t.Fatal(err)
			}
			if c.Limits.Body != 16<<20 || c.DecodeOnly.MaxShare != 0.5 || !slices.Equal(c.Router.Decode, router.MustEntries("http://d:1")) {
				t.Errorf("got %+v %+v %v", c.Limits, c.DecodeOnly, c.Router.Decode)
			}
		})
	}
}

// A 0 switches off what may be switched off.
func TestConfigZeroSwitchesOff(t *testing.T) {
	for _, path := range mayBeZero {
		if _, err := load(t, append([]string{"--" + (key{path: path}).flag() + "=0"}, decodeFlag...), nil); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestConfigKeyFiles(t *testing.T) {
	clients := writeFile(t, "clients", "# ours\nalpha\n\n  beta\n", 0o600)
	backend := writeFile(t, "backend", "gamma\n", 0o400)
	c, err := load(t, append([]string{"--api-key=zero", "--api-key-file", clients, "--backend-api-key-file", backend}, decodeFlag...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.APIKeys, []string{"zero", "alpha", "beta"}) || c.BackendAPIKey != "gamma" {
		t.Errorf("got %q and %q", c.APIKeys, c.BackendAPIKey)
	}
	const names = " (flag --api-key-file, XPYD_API_KEY_FILE)"
	shared := writeFile(t, "shared", "sesame\n", 0o640)
	empty := writeFile(t, "empty", "# none yet\n", 0o600)
	for _, tc := range []struct{ name, file, want string }{
		{"missing", "/nonexistent/k", `"/nonexistent/k" cannot be read: no such file or directory; give a file that this user may read`},
		{"open to others", shared, `"` + shared + `" may be read by others (mode 0640); run chmod 600 ` + shared},
		{"no key", empty, `"` + empty + `" holds no key; write one a line`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, append([]string{"--api-key-file", tc.file}, decodeFlag...), nil)
			checkUsage(t, err, "config: api_key_file: "+tc.want+names)
		})
	}
	t.Run("a systemd credential", func(t *testing.T) {
		file := writeFile(t, "keys", "alpha\n", 0o440)
		_, err := load(t, append([]string{"--api-key-file", file}, decodeFlag...), []string{"CREDENTIALS_DIRECTORY=" + filepath.Dir(file)})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("two backend keys", func(t *testing.T) {
		file := writeFile(t, "keys", "sesame\nsesame2\n", 0o600)
		_, err := load(t, append([]string{"--backend-api-key-file", file}, decodeFlag...), nil)
		checkUsage(t, err, `config: backend_api_key_file: "`+file+`" holds 2 keys; leave one (flag --backend-api-key-file, XPYD_BACKEND_API_KEY_FILE)`)
	})
	t.Run("backend key and file", func(t *testing.T) {
		_, err := load(t, append([]string{"--backend-api-key=sesame", "--backend-api-key-file", backend}, decodeFlag...), nil)
		checkUsage(t, err, `config: backend_api_key_file: backend_api_key is set as well; give one of them (flag --backend-api-key-file, XPYD_BACKEND_API_KEY_FILE)`)
	})
}

func TestConfigKeysHaveHelp(t *testing.T) {
	names := map[string]bool{"config": true}
	for _, k := range configKeys() {
		if k.help() == "" {
			t.Errorf("%s has no line in keyHelp", k.path)
		}
		if names[k.flag()] {
			t.Errorf("--%s stands for two keys", k.flag())
		}
		names[k.flag()] = true
	}
	if extra := len(keyHelp) - len(configKeys()); extra != 0 {
		t.Errorf("keyHelp has %d lines more than there are keys", extra)
	}
}
