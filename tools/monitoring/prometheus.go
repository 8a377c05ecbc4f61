package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"xpyd/tools/process"
)

// Prometheus is a server that scrapes each second.
type Prometheus struct {
	*process.Process
	url string
}

// StartPrometheus scrapes the proxies and the engines, and evaluates the rules below configs.
func StartPrometheus(ctx context.Context, dir, executable, configs string, proxies, engines []string) (*Prometheus, error) {
	var rules []string
	for _, path := range ruleFiles(configs) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		rules = append(rules, abs)
	}
	// JSON is YAML.
	job := func(name string, targets []string) object {
		return object{"job_name": name, "static_configs": []object{{"targets": targets}}}
	}
	config, err := json.Marshal(object{
		"global":         object{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     rules,
		"scrape_configs": []object{job("xpyd", proxies), job("vllm", engines)},
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, fmt.Errorf("start prometheus: %w", err)
	}
	addr, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(filepath.Join(dir, "prometheus.log"), nil, executable, "--config.file", path,
		"--storage.tsdb.path", filepath.Join(dir, "tsdb"), "--web.listen-address", addr, "--enable-feature=exemplar-storage")
	if err != nil {
		return nil, err
	}
	if err := p.AwaitHTTP(ctx, "http://"+addr+"/-/ready"); err != nil {
		p.Stop()
		return nil, err
	}
	return &Prometheus{p, "http://" + addr}, nil
}

// ask sends a request to the API, and reads the data of its answer.
func (p *Prometheus) ask(ctx context.Context, path string, query url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/"+path, strings.NewReader(query.Encode()))
	if err != nil {
		return fmt.Errorf("ask prometheus: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask prometheus: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read prometheus' answer: %w", err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus refuses %s: %s", query.Get("query"), answer.Error)
	}
	return nil
}

// series returns how many series an expression has now.
func (p *Prometheus) series(ctx context.Context, query string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := p.ask(ctx, "query", url.Values{"query": {query}}, &data)
	return len(data.Result), err
}

// exemplars returns how many series have exemplars with a trace.
func (p *Prometheus) exemplars(ctx context.Context, query string) (n int, err error) {
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	err = p.ask(ctx, "query_exemplars", url.Values{"query": {query}, "start": {"0"}, "end": {"9999999999"}}, &data)
	for _, s := range data {
		for _, e := range s.Exemplars {
			if e.Labels["trace_id"] != "" {
				n++
			}
		}
	}
	return n, err
}

// Fires reports whether an alert fires, about that backend unless backend is empty.
func (p *Prometheus) Fires(ctx context.Context, alert, backend string) (bool, error) {
	query := fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert)
	if backend != "" {
		query = fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing",backend=%q}`, alert, backend)
	}
	n, err := p.series(ctx, query)
	return n > 0, err
}
