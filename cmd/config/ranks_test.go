package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/router"
)

// parsed reads a pool that is right by itself.
func parsed(pool string) []router.Entry {
	all, err := parsePool(pool)
	if err != nil {
		panic(err)
	}
	return all
}

func ranked(edit func(c *Config)) (Config, error) {
	c := Default()
	c.Router.Prefill, c.Router.Decode = parsed("http://p:8000@0..2 gpus=2"), parsed("http://d:8000@1,http://d:8000@0")
	edit(&c)
	return c, c.validate()
}

func TestRanksBecomeBackends(t *testing.T) {
	c, err := ranked(func(*Config) {})
	want := []string{"http://p:8000@0 gpus=2", "http://p:8000@1 gpus=2", "http://p:8000@2 gpus=2"}
	if err != nil || !slices.Equal(router.Texts(c.Router.Prefill), want) || len(c.Router.Decode) != 2 {
		t.Errorf("%v: %v and %v", err, c.Router.Prefill, c.Router.Decode)
	}
	if _, err := router.New(c.Router, 1, time.Now); err != nil {
		t.Error(err)
	}
}

func TestRanksThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(c *Config)
		want string
	}{
		"twice":            {func(c *Config) { c.Router.Decode = parsed("http://d:1@0..3,http://d:1@2") }, `"http://d:1@2" is listed twice`},
		"with and without": {func(c *Config) { c.Router.Decode = parsed("http://d:1@0,http://d:1") }, "give all of its ranks, or none"},
		"found and named":  {func(c *Config) { c.Router.Decode = parsed("http://d:1@auto,http://d:1@1") }, "or @auto alone"},
		"found and whole":  {func(c *Config) { c.Router.Decode = parsed("http://d:1,http://d:1@auto") }, "or @auto alone"},
		"found twice":      {func(c *Config) { c.Router.Decode = parsed("http://d:1@auto,http://D:1@auto") }, `"http://d:1@auto" is listed twice`},
		"found in both":    {func(c *Config) { c.Router.Decode = parsed("http://p:8000@auto") }, "is in both pools"},
		"found, a client's": {func(c *Config) {
			c.Router.Prefill, c.Router.Decode = parsed("http://p:1"), parsed("http://d:1@auto")
			c.Headers.Pass = []string{"x-data-parallel-rank"}
		}, "is written by xpyd where backends are ranks"},
		"encode too": {func(c *Config) { c.Router.Encode = parsed("http://p:8000@7") }, "is in another pool too"},
		"both roles": {func(c *Config) { c.Router.Decode = parsed("http://p:8000@7") }, "is in both pools"},
		"a client's": {func(c *Config) { c.Headers.Pass = []string{"x-data-parallel-rank"} }, "is written by xpyd where backends are ranks"},
	} {
		if _, err := ranked(tc.edit); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := parsePool("http://d:1@3..1"); err == nil || !strings.Contains(err.Error(), "try http://127.0.0.1:8100@0..7") {
		t.Errorf("range: %v", err)
	}
}
