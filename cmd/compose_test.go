package cmd

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/viper"
)

type composeService struct {
	Image       string
	Profiles    []string
	Command     []string
	Environment map[string]string
}

func readCompose(t *testing.T) map[string]composeService {
	t.Helper()
	v := viper.New()
	v.SetConfigFile("../configs/compose.yaml")
	if err := v.ReadInConfig(); err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]composeService }
	if err := v.Unmarshal(&file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

// Each proxy's settings load. Its backends are services of the same profile, on the port where those
// listen.
func TestComposeFile(t *testing.T) {
	services := readCompose(t)
	proxies := 0
	for name, s := range services {
		if len(s.Profiles) != 1 || s.Image == "" {
			t.Errorf("%s has the profiles %q and the image %q, want one of each", name, s.Profiles, s.Image)
		}
		if s.Command[0] == "sim" {
			if err := newSimCmd().ParseFlags(s.Command[1:]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(s.Command, []string{"serve"}) {
			continue
		}
		proxies++
		var environ []string
		for k, v := range s.Environment {
			environ = append(environ, strings.ToUpper(k)+"="+v) // viper's keys are lower case
		}
		c, err := load(t, nil, environ)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for role, pool := range map[string][]string{"prefill": c.Router.Prefill, "decode": c.Router.Decode} {
			for _, base := range pool {
				checkComposeEngine(t, services, s.Profiles[0], role, base)
			}
		}
	}
	if proxies != 2 {
		t.Errorf("%d proxies, want one for each of the profiles sim and gpu", proxies)
	}
}

func checkComposeEngine(t *testing.T, services map[string]composeService, profile, role, base string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	engine, ok := services[u.Hostname()]
	if !ok || !slices.Equal(engine.Profiles, []string{profile}) {
		t.Errorf("%s is no service of the profile %s", base, profile)
		return
	}
	side := fmt.Sprintf("[sim --role %s --listen 0.0.0.0:%s --side-channel %s:5600]", role, u.Port(), u.Hostname())
	if profile == "gpu" {
		side = fmt.Sprintf(`"kv_role":"kv_%s"`, map[string]string{"prefill": "producer", "decode": "consumer"}[role])
		if host := engine.Environment["vllm_nixl_side_channel_host"]; host != u.Hostname() {
			t.Errorf("%s: the side channel's host is %q, which is not the service", base, host)
		}
	}
	if got := fmt.Sprint(engine.Command); !strings.Contains(got, side) {
		t.Errorf("%s: command %s lacks %s", base, got, side)
	}
}
