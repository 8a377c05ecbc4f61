package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// expression is a piece of PromQL, and the place it was found in.
type expression struct{ where, query string }

// everything replaces Grafana's variables by what shows all. The window is some scrapes of the check.
func everything(expr string) string {
	return regexp.MustCompile(`\$(job|instance|engine_job|model)\b`).ReplaceAllString(strings.ReplaceAll(expr, "$__rate_interval", "15s"), ".*")
}

// comparison matches an operator that drops series. Matchers of labels have no spaces around theirs.
var comparison = regexp.MustCompile(` (==|!=|>=|<=|>|<) `)

// whether makes a condition answer 0 or 1 in place of nothing, so that its series show while it is false.
func whether(expr string) string { return comparison.ReplaceAllString(expr, " $1 bool ") }

// readDashboard returns the expressions of the panels and the variables of a dashboard.
func readDashboard(path string) ([]expression, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a dashboard: %w", err)
	}
	var d struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var all []expression
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, expression{d.Title + ", " + p.Title, whether(everything(t.Expr))})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`label_values\((.*), (\w+)\)`).FindStringSubmatch(strings.ReplaceAll(string(v.Query), `\"`, `"`))
		if m == nil {
			return nil, fmt.Errorf("%s: the variable %s is no label_values(SERIES, LABEL)", path, v.Name)
		}
		all = append(all, expression{d.Title + ", variable " + v.Name, fmt.Sprintf(`count by (%s) (%s)`, m[2], everything(m[1]))})
	}
	return all, nil
}

// rule is a recording or an alerting rule.
type rule struct{ Record, Alert, Expr string }

func (r rule) name() string { return r.Record + r.Alert }

func readRules(path string) ([]rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// ruleFiles are the rules that are shipped.
func ruleFiles(configs string) []string {
	return []string{filepath.Join(configs, "prometheus", "rules.yaml"), filepath.Join(configs, "prometheus", "alerts.yaml")}
}

// onlyInTrouble is the alert whose series is there only while it may fire. make sick shows that it does.
const onlyInTrouble = "XpydEngineSlow"

// expressions returns those of all dashboards and rules below configs.
func expressions(configs string) ([]expression, error) {
	files, err := filepath.Glob(filepath.Join(configs, "grafana", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []expression
	for _, path := range files {
		found, err := readDashboard(path)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for _, path := range ruleFiles(configs) {
		rules, err := readRules(path)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			if r.Alert == onlyInTrouble {
				continue
			}
			all = append(all, expression{r.name(), whether(r.Expr)})
			if r.Record != "" {
				all = append(all, expression{r.name() + ", recorded", r.Record})
			}
		}
	}
	if len(files) == 0 || len(all) == 0 {
		return nil, fmt.Errorf("%s has no dashboards or no rules", configs)
	}
	return slices.Clip(all), nil
}
