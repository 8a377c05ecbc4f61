package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"xpyd/intake/routes"
	"xpyd/metrics/trace"
	"xpyd/netio"
	"xpyd/router"
)

// mayBeZero has the durations and sizes for which 0 means "do not wait" or "none". Any other 0 would
// fail every request.
var mayBeZero = [...]string{
	"timeouts.prefill_abort_grace", "timeouts.decode_abort_grace",
	"timeouts.drain_delay", "timeouts.drain", "kv.lease_margin", "kv.reuse_tokens_from",
	"health.slow_start", "health.progress_floor", "health.slow_after", "objective.ttft", "objective.tpot", "log.flush", "routing.poll", "routing.prefix_memory",
}

// aboveZero has the counts that 0 would make meaningless. For all other counts 0 switches a cap or a
// rule off.
var aboveZero = [...]string{"health.fall", "health.rise"}

// validate checks each field alone and some fields together.
func (c *Config) validate() error {
	for _, check := range []func() error{
		c.checkAddresses, c.checkPools, c.checkOwnPort, c.checkConnectors, c.checkPartners, c.checkAffinity, c.checkPassed, c.checkRoutes, c.checkFront, c.checkAmounts, c.checkTogether, c.checkChoices,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// invalid makes an error that names the field, the value and the fix.
func invalid(path, value, fix string) error {
	return fmt.Errorf("%s: %q %s %s", path, value, fix, key{path: path}.names())
}

func (c *Config) checkAddresses() error {
	if err := checkAddress("listen", c.Listen, ":8080"); err != nil {
		return err
	}
	if c.Admin == "" {
		return nil
	}
	if err := checkAddress("admin", c.Admin, "127.0.0.1:8081"); err != nil {
		return err
	}
	for _, s := range c.Siblings {
		if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return fmt.Errorf("siblings: each must be a URL with http:// or https://, such as http://10.0.0.2:8081 %s", key{path: "siblings"}.names())
		}
	}
	if c.Admin == c.Listen && samePort(c.Admin, c.Listen) {
		return invalid("admin", c.Admin, "is the data port too; give it a port of its own")
	}
	if samePort(c.Admin, c.Listen) {
		return invalid("admin", c.Admin, fmt.Sprintf("is within the data port, listen %q; give one of them another port", c.Listen))
	}
	return nil
}

func checkAddress(path, addr, example string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		if _, err := strconv.ParseUint(addr, 10, 16); err == nil { // the port alone
			example = example[:strings.LastIndexByte(example, ':')+1] + addr
		}
		return invalid(path, addr, "must be host:port; try "+example)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return invalid(path, addr, "must end in a port, 0 to 65535; try "+example)
	}
	return nil
}

func (c *Config) checkPools() error {
	of := map[string][]router.Entry{} // by engine
	for _, e := range c.Router.Entries() {
		path := listOf(e.Role)
		engine, rank := router.SplitRank(e.URL)
		for _, other := range of[engine] {
			switch _, beside := router.SplitRank(other.URL); {
			case other.Role != e.Role:
			case other.URL == e.URL:
				return invalid(path, e.URL, "is listed twice; remove one")
			case rank < 0 || beside < 0: // it has the other as a rank, or may have it
				return invalid(path, e.URL, "and "+other.URL+" are the same engine, once with a rank and once without; give all of its ranks, or none, or @auto alone")
			}
		}
		of[engine] = append(of[engine], e)
	}
	if len(c.Router.Pooled(router.Decode)) == 0 {
		return fmt.Errorf("decode: needs at least one backend; try --decode http://127.0.0.1:8200, or --engine for one without a role %s", key{path: "decode"}.names())
	}
	return c.checkRoles()
}

// listOf is the key whose list has the entries of a role.
func listOf(role router.Role) string {
	if role == router.Both {
		return "engines"
	}
	return role.String()
}

// checkRoles refuses an engine in two lists. One in prefill and decode is an engine without a role, and one that encodes for itself needs no leg for it. Entries that differ in case, a slash at the
// end or the default port are equal by now.
func (c *Config) checkRoles() error {
	if base := inBoth(c.Router.Prefill, c.Router.Decode); base != "" {
		return fmt.Errorf("prefill and decode: %q is in both pools; keep it in one, or name it once as an engine without a role: --engine %s %s %s",
			base, base, key{path: "prefill"}.names(), key{path: "decode"}.names())
	}
	if base := inBoth(c.Router.Engines, slices.Concat(c.Router.Prefill, c.Router.Decode)); base != "" {
		return fmt.Errorf("engines: %q is in prefill or decode too, which give it one role; keep it in one list %s", base, key{path: "engines"}.names())
	}
	if base := inBoth(c.Router.Encode, slices.Concat(c.Router.Prefill, c.Router.Decode, c.Router.Engines)); base != "" {
		return fmt.Errorf("encode: %q is in another pool too, and an engine encodes for itself what reaches it without encodings; leave it in one %s", base, key{path: "encode"}.names())
	}
	return nil
}

// inBoth returns the URL of an engine that has an entry in both lists, or "".
func inBoth(some, others []router.Entry) string {
	for _, a := range some {
		engine, _ := router.SplitRank(a.URL)
		if slices.ContainsFunc(others, func(b router.Entry) bool { base, _ := router.SplitRank(b.URL); return base == engine }) {
			return engine
		}
	}
	return ""
}

// parsePool reads the entries of a pool, with URLs of the form scheme://host:port. An entry with several ranks becomes
// one for each of them.
func parsePool(raw any) (pool []router.Entry, err error) {
	list, err := parseList(raw)
	for _, entry := range list {
		raw, options, _ := strings.Cut(entry, " ")
		ranks, err := router.Ranks(raw)
		if err != nil {
			return nil, fmt.Errorf("%q %w", router.ShowURL(raw), err)
		}
		e, err := router.ParseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("%q %w", showEntry(raw, options), err)
		}
		for _, e.URL = range ranks {
			pool = append(pool, e)
		}
	}
	return pool, err
}

// showEntry returns an entry of a pool for an error, without words that are no options. They may be another URL with
// a password, and the error names the first of them.
func showEntry(raw, options string) string {
	shown := router.ShowURL(raw)
	for _, word := range strings.Fields(options) {
		if slices.ContainsFunc([]string{"weight=", "gpus=", "bootstrap=", "connector=", "kv_events=", "kv_replay=", "state="}, func(key string) bool { return strings.HasPrefix(word, key) }) {
			shown += " " + router.ShowURL(word)
		}
	}
	return shown
}

// checkAffinity refuses a header that no request can have, which would be a setting that does
// nothing.
func (c *Config) checkAffinity() error {
	for _, name := range c.Router.Affinity.Headers {
		if !isToken(name) {
			return invalid("affinity.headers", name, "is no name of a header; try X-Session-ID")
		}
	}
	return nil
}

// checkRoutes refuses paths that are served already, and those by which clients would operate engines.
func (c *Config) checkRoutes() error {
	for i, entry := range c.Routes.Pass {
		if _, err := routes.Parse(entry); err != nil {
			return invalid("routes.pass", entry, err.Error())
		}
		if slices.Contains(c.Routes.Pass[:i], entry) {
			return invalid("routes.pass", entry, "is listed twice; remove one")
		}
	}
	return nil
}

// checkFront checks what stands before the data port or beside it: web pages, balancers, a collector.
func (c *Config) checkFront() error {
	if origin, err := c.CORS.Check(); err != nil {
		return invalid("cors.origins", origin, err.Error())
	}
	if err := c.Tracing.CheckEndpoint(); err != nil {
		return invalid("tracing.endpoint", router.ShowURL(c.Tracing.Endpoint), err.Error())
	}
	if p := c.Tracing.Protocol; p != "" && p != trace.GRPC && p != trace.HTTP {
		return invalid("tracing.protocol", p, "must be one of "+trace.GRPC+", "+trace.HTTP)
	}
	if s := c.Tracing.Sample; !(s >= 0 && s <= 1) {
		return invalid("tracing.sample", strconv.FormatFloat(s, 'f', -1, 64), "must be from 0 to 1; try 0.01")
	}
	if _, value, err := netio.ParseNetworks(c.ProxyProtocol.From); err != nil {
		return invalid("proxy_protocol.from", value, err.Error())
	}
	return nil
}

// isToken reports whether s has only letters, digits and the marks that RFC 9110 allows in a name.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// checkAmounts refuses negative durations and sizes, and 0 where it has no meaning.
func (c *Config) checkAmounts() error {
	for _, k := range configKeys() {
		v := reflect.ValueOf(c).Elem().FieldByIndex(k.index).Interface()
		least, text := int64(1), ""
		var n int64
		switch v := v.(type) {
		case time.Duration:
			n, text = int64(v), v.String()
		case int64:
			n, text = v, SizeText(v)
		case int:
			n, text, least = int64(v), strconv.Itoa(v), 0
		default:
			continue
		}
		if slices.Contains(mayBeZero[:], k.path) {
			least = 0
		}
		if slices.Contains(aboveZero[:], k.path) {
			least = 1
		}
		switch {
		case n < least && least == 1:
			return invalid(k.path, text, "must be above 0; try "+k.defaultText())
		case n < least:
			return invalid(k.path, text, "must not be below 0; try "+k.defaultText())
		}
	}
	return nil
}

// minPrefixMemory has room for some chats. Less would only pretend to remember.
const minPrefixMemory = 1 << 20

// maxErrors keeps 14.4 times objective.errors, at which the fast alert of configs/prometheus/alerts.yaml fires, below all completions.
const maxErrors = 0.069

// minEventsMemory has room for the blocks of one small engine.
const minEventsMemory = 1 << 20

// checkTogether checks values that bound each other.
func (c *Config) checkTogether() error {
	if c.Limits.BodyBudget < c.Limits.Body {
		return invalid("limits.body_budget", SizeText(c.Limits.BodyBudget),
			fmt.Sprintf("must hold one body of limits.body, %s", SizeText(c.Limits.Body)))
	}
	if s := c.Limits.ClientShare; !(s > 0 && s <= 1) {
		return invalid("limits.client_share", strconv.FormatFloat(s, 'f', -1, 64), "must be above 0 and up to 1; try 0.5")
	}
	if m := c.Router.Routing.PrefixMemory; m > 0 && m < minPrefixMemory {
		return invalid("routing.prefix_memory", SizeText(m), "must be 0, or at least "+SizeText(minPrefixMemory))
	}
	if b := c.Router.Routing.PrefixBlock; b < 64 || b > 64<<10 {
		return invalid("routing.prefix_block", SizeText(b), "must be 64 to 64KiB")
	}
	if m := c.Router.Routing.KVEventsMemory; m < minEventsMemory {
		return invalid("routing.kv_events_memory", SizeText(m), "must be at least "+SizeText(minEventsMemory))
	}
	if c.KV.LeaseMargin >= c.KV.Lease {
		return invalid("kv.lease_margin", c.KV.LeaseMargin.String(),
			fmt.Sprintf("must be below kv.lease, %s; try %s", c.KV.Lease, c.KV.Lease/6))
	}
	if s := c.KV.TransferGBps; !(s >= 0 && s <= 1e6) {
		return invalid("kv.transfer_gbps", strconv.FormatFloat(s, 'f', -1, 64), "must be 0 or more; try 10")
	}
	if h := c.Router.Health; h.EjectMax < h.EjectFor {
		return invalid("health.eject_max", h.EjectMax.String(),
			fmt.Sprintf("must not be below health.eject_for, %s", h.EjectFor))
	}
	if s := c.DecodeOnly.MaxShare; !(s >= 0 && s <= 1) {
		return invalid("decode_only.max_share", strconv.FormatFloat(s, 'f', -1, 64), "must be from 0 to 1; try 1")
	}
	if w := c.Router.PD.StallWeight; !(w >= 0 && w <= 100) {
		return invalid("pd.stall_weight", strconv.FormatFloat(w, 'f', -1, 64), "must be from 0 to 100; try 1")
	}
	if e := c.Router.Goal.Errors; !(e >= 0 && e <= maxErrors) {
		return invalid("objective.errors", strconv.FormatFloat(e, 'f', -1, 64),
			fmt.Sprintf("must be from 0 to %g, as the fast alert fires at 14.4 times it; try 0.001", maxErrors))
	}
	return nil
}

// LogLevel returns the level that an operator means: in any case, and warning for warn, as other programs have it.
func LogLevel(name string) string {
	if name = strings.ToLower(name); name == "warning" {
		return "warn"
	}
	return name
}

// checkChoices checks names out of closed sets.
func (c *Config) checkChoices() error {
	c.Log.Level, c.Log.Format = LogLevel(c.Log.Level), strings.ToLower(c.Log.Format)
	for _, choice := range []struct {
		path, value string
		names       []string
	}{
		{"prefill_policy", c.Router.PrefillPolicy, router.Policies()},
		{"decode_policy", c.Router.ChosenDecodePolicy(), router.Policies()},
		{"pd.mode", c.Router.PD.Mode, router.PDModes()},
		{"kv.release", c.KV.Release, []string{"auto", "reject", "decode", "off"}},
		{"log.level", c.Log.Level, []string{"debug", "info", "warn", "error"}},
		{"log.format", c.Log.Format, []string{"json", "console"}},
	} {
		if !slices.Contains(choice.names, choice.value) {
			return invalid(choice.path, choice.value, "must be one of "+strings.Join(choice.names, ", "))
		}
	}
	return nil
}
