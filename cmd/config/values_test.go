package config

import (
	"fmt"
	"strings"
	"testing"
)

// Shells offer exactly the values that the configuration accepts.
func TestValuesAreThoseThatAreAccepted(t *testing.T) {
	for path, values := range keyValues {
		var names []string
		for _, v := range values {
			names = append(names, v.name)
			if v.help == "" {
				t.Errorf("%s: no help of %s", path, v.name)
			}
		}
		_, err := load(t, append([]string{"--" + key{path: path}.flag(), "nonsense"}, decodeFlag...), nil)
		if want := fmt.Sprintf("must be one of %s ", strings.Join(names, ", ")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: shells offer %q, the configuration says %v", path, names, err)
		}
	}
}
