package migrate

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// toy has the flags of vLLM's toy_proxy_server.py (tests/v1/kv_connector/nixl_integration there).
func toy() router {
	rules := read(one, "host", "port")
	rules = append(rules, read(many, "prefiller-hosts", "prefiller-host", "prefiller-ports", "prefiller-port",
		"decoder-hosts", "decoder-host", "decoder-ports", "decoder-port")...)
	return router{
		name:  "toy",
		about: "The toy proxy sends OPENAI_API_KEY to the engines. Here that is backend_api_key_file.",
		rules: rules,
		fit: func(g given, p *plan) error {
			p.listen(g, "127.0.0.1", "8000")
			for _, pool := range []struct{ key, flag, port string }{
				{"prefill", "prefiller", "8100"}, {"decode", "decoder", "8200"},
			} {
				if err := p.toyPool(g, pool.key, pool.flag, pool.port); err != nil {
					return err
				}
				p.set(pool.key+"_policy", "round_robin", "it takes one engine after the other")
			}
			return nil
		},
	}
}

// toyPool makes the URLs of a pool from its hosts and ports, one port for each host.
func (p *plan) toyPool(g given, key, flag, port string) error {
	hosts := append(g[flag+"-hosts"], g[flag+"-host"]...)
	ports := append(g[flag+"-ports"], g[flag+"-port"]...)
	if len(hosts) == 0 {
		hosts = []string{"localhost"}
	}
	if len(ports) == 0 {
		ports = []string{port}
	}
	if len(hosts) != len(ports) {
		return fmt.Errorf("%d --%s-hosts and %d --%s-ports; give as many of one as of the other", len(hosts), flag, len(ports), flag)
	}
	var urls []string
	for i, host := range hosts {
		if _, err := strconv.ParseUint(ports[i], 10, 16); err != nil {
			return fmt.Errorf("--%s-ports: %q is no port", flag, ports[i])
		}
		urls = append(urls, "http://"+net.JoinHostPort(strings.Trim(host, "[]"), ports[i]))
	}
	p.set(key, list(urls), g.from(flag+"-hosts", flag+"-host", flag+"-ports", flag+"-port"))
	return nil
}
