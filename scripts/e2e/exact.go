package main

import "context"

func exactOneOne(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, plainEngine(), prefillEngine(1), decodeEngine(1))
	if err != nil {
		return err
	}
	_, err = t.fleet.proxyOf(ctx, engines[1:])
	return err
}

func exactTwoOne(ctx context.Context, t *trial) error { return nil }

func counters(ctx context.Context, t *trial) error { return nil }
