package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// tree is a YAML mapping. A member that is nil is left out.
type tree = map[string]any

// pyYAML writes a tree as Python's yaml.dump does: keys sorted as text, sequences not indented, and
// single quotes only where a plain word would be read as something else.
func pyYAML(t tree) (string, error) {
	node, err := yamlNode(t)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(node); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return b.String(), e.Close()
}

func yamlNode(value any) (*yaml.Node, error) {
	switch v := value.(type) {
	case tree:
		return yamlMapping(v)
	case []any:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v {
			child, err := yamlNode(one)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		return node, nil
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: v}
		if node.ShortTag() != "!!str" || oldYAML().MatchString(v) {
			node.Tag, node.Style = "!!str", yaml.SingleQuotedStyle
		}
		return node, nil
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: yamlFloat(v)}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}, nil
	}
	return nil, fmt.Errorf("write YAML: no form for %T", value)
}

// oldYAML matches the words that are text in YAML 1.2 and something else in YAML 1.1, as Python reads
// it: "yes", and "1:2", which is 62.
func oldYAML() *regexp.Regexp {
	return regexp.MustCompile(`^((?i:yes|no|on|off)|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?0[0-7_]+|=)$`)
}

func yamlMapping(t tree) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range slices.Sorted(maps.Keys(t)) {
		if t[key] == nil {
			continue
		}
		child, err := yamlNode(t[key])
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, child)
	}
	return node, nil
}

// yamlFloat is a float of YAML 1.1, which needs a point in the mantissa.
func yamlFloat(x float64) string {
	if math.IsInf(x, 1) {
		return ".inf"
	}
	s := pyFloat(x).String()
	if strings.Contains(s, "e") && !strings.Contains(s, ".") {
		s = strings.Replace(s, "e", ".0e", 1)
	}
	return s
}
