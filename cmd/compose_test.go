package cmd

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"xpyd/router"
)

type composeService struct {
	Image       string
	Profiles    []string
	Command     []string
	Environment map[string]string
	Volumes     []string
	Healthcheck struct{ Disable bool }
	Configs     []struct{ Source, Target string }
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
		if len(s.Command) > 0 && s.Command[0] == "sim" {
			if err := newSimCmd().ParseFlags(s.Command[1:]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !s.Healthcheck.Disable {
				t.Errorf("%s has the image's health check, which asks an admin port", name)
			}
		}
		if !slices.Equal(s.Command, []string{"serve"}) {
			continue
		}
		proxies++
		var environ []string
		for k, v := range s.Environment {
			v = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(v, "$1") // Docker takes the default of a variable that is not set
			environ = append(environ, strings.ToUpper(k)+"="+v)                    // viper's keys are lower case
		}
		c, err := load(t, nil, environ)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for role, pool := range map[string][]router.Entry{"prefill": c.Router.Prefill, "decode": c.Router.Decode} {
			for _, e := range pool {
				checkComposeEngine(t, services, s.Profiles[0], role, e.URL)
			}
		}
	}
	if proxies != 2 {
		t.Errorf("%d proxies, want one for each of the profiles sim and gpu", proxies)
	}
}

// mounted returns the file or folder of the repository that a service sees at path, or "".
func (s composeService) mounted(path string) string {
	for _, v := range s.Volumes {
		from, to, _ := strings.Cut(strings.TrimSuffix(v, ":ro"), ":")
		if rest, ok := strings.CutPrefix(path, to); ok && strings.HasPrefix(from, "./") {
			return filepath.Join("../configs", from, rest)
		}
	}
	return ""
}

// readYAML reads a file of configs/ into v.
func readYAML(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Prometheus reads the files that are mounted, asks services by their names and ports, and shows the token
// that the proxies ask for.
func TestComposePrometheus(t *testing.T) {
	services := readCompose(t)
	p := services["prometheus"]
	var file struct {
		Rules []string `yaml:"rule_files"`
		Jobs  []struct {
			Name          string `yaml:"job_name"`
			Authorization struct {
				File string `yaml:"credentials_file"`
			}
			DNS []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	path := p.mounted(strings.TrimPrefix(p.Command[0], "--config.file="))
	readYAML(t, path, &file)
	for _, rules := range file.Rules {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), rules)); err != nil {
			t.Error(err)
		}
	}
	asked := map[string]string{}
	for _, job := range file.Jobs {
		if job.Name == "xpyd" && (len(p.Configs) != 1 || job.Authorization.File != p.Configs[0].Target) {
			t.Errorf("%s shows %q, and gets %v", job.Name, job.Authorization.File, p.Configs)
		}
		for _, d := range job.DNS {
			for _, name := range d.Names {
				asked[name] = fmt.Sprintf("%s:%d", job.Name, d.Port)
			}
		}
	}
	for name, s := range services {
		want := "vllm:8000"
		switch {
		case slices.Equal(s.Profiles, []string{"monitoring"}):
			want = ""
		case slices.Equal(s.Command, []string{"serve"}):
			want = "xpyd" + s.Environment["xpyd_admin"]
		}
		if asked[name] != want {
			t.Errorf("%s is scraped as %q, want %q", name, asked[name], want)
		}
		delete(asked, name)
	}
	if len(asked) > 0 {
		t.Errorf("no service is named %v", asked)
	}
}

// Grafana finds its data source and its dashboards.
func TestComposeGrafana(t *testing.T) {
	services := readCompose(t)
	g := services["grafana"]
	const provisioning = "/etc/grafana/provisioning"
	var sources struct{ Datasources []struct{ Type, URL string } }
	readYAML(t, g.mounted(provisioning+"/datasources/prometheus.yaml"), &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" {
		t.Fatalf("data sources %+v", sources)
	}
	u, err := url.Parse(sources.Datasources[0].URL)
	if _, ok := services[u.Hostname()]; err != nil || !ok || u.Port() != "9090" {
		t.Errorf("%s is no service: %v", sources.Datasources[0].URL, err)
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, g.mounted(provisioning+"/dashboards/xpyd.yaml"), &dashboards)
	if len(dashboards.Providers) != 1 {
		t.Fatalf("providers %+v", dashboards)
	}
	folder := dashboards.Providers[0].Options.Path
	if found, err := filepath.Glob(g.mounted(folder) + "/*.json"); err != nil || len(found) != 3 {
		t.Errorf("dashboards %q: %v", found, err)
	}
	home := g.Environment["gf_dashboards_default_home_dashboard_path"]
	if _, err := os.Stat(g.mounted(home)); err != nil || filepath.Dir(home) != folder {
		t.Errorf("home %s: %v", home, err)
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

// The image's health check is a command that xpyd has.
func TestImageHealthCheck(t *testing.T) {
	m := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(readText(t, "configs/Dockerfile"))
	if m == nil {
		t.Fatal("configs/Dockerfile has no HEALTHCHECK")
	}
	var words []string
	if err := json.Unmarshal([]byte(m[1]), &words); err != nil {
		t.Fatal(err)
	}
	if len(words) < 2 || words[0] != "/xpyd" {
		t.Fatalf("the health check is %q", words)
	}
	found, rest, err := newRootCmd().Find(words[1:])
	if err != nil || found.Name() != "healthcheck" {
		t.Fatalf("%q is no command: %v", words, err)
	}
	if err := found.ParseFlags(rest); err != nil {
		t.Error(err)
	}
}
