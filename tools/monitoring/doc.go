// Package monitoring writes the dashboards of configs/grafana, and checks them and the rules of
// configs/prometheus against a real Prometheus that scrapes xpyd and its engines.
package monitoring
