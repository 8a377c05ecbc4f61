package progress

import (
	"fmt"
	"testing"
	"time"

	"xpyd/router"
)

func TestSlowEngines(t *testing.T) {
	type span struct {
		from  time.Duration
		ratio float64
	}
	alike, other := true, false
	for _, tc := range []struct {
		name  string
		alike bool
		spans []span
		want  string
	}{
		{"as fast as its peers", alike, []span{{0, 1}}, "[]"},
		{"half as fast", alike, []span{{0, 0.4}}, "[]"},
		{"a third as fast", alike, []span{{0, 1}, {30 * time.Second, 0.33}}, "[slow@1m30s:0.33]"},
		{"slow for half a minute", alike, []span{{0, 0.1}, {30 * time.Second, 1}}, "[]"},
		{"slow, with moments in which too little is known", alike, []span{{0, 0.2}, {20 * time.Second, 0}, {50 * time.Second, 0.2}}, "[slow@1m0s:0.20]"},
		{"slow, and then fast again", alike, []span{{0, 0.2}, {80 * time.Second, 0.9}}, "[slow@1m0s:0.20 fast@1m42s]"},
		{"other GPUs, and always so", other, []span{{0, 0.2}}, "[]"},
		{"other GPUs, and slower than it was", other, []span{{0, 0.5}, {30 * time.Second, 0.1}}, "[slow@1m30s:0.20]"},
	} {
		cfg := router.DefaultConfig()
		cfg.Decode = router.MustEntries("http://d1:80", "http://d2:80")
		rt, err := router.New(cfg, 0.25, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		b := rt.Snapshot().Backends(router.Decode)[0]
		var all Speeds
		got := []string{}
		for at := time.Duration(0); at <= 3*time.Minute; at += slowly {
			speed := router.Speed{Backend: b, Work: "decode", Alike: tc.alike}
			for _, s := range tc.spans {
				if at >= s.from {
					speed.Ratio = s.ratio
				}
			}
			all.Look(moment(at), []router.Speed{speed}, time.Minute, func(_ *router.Backend, slow *router.Slow) {
				if slow == nil {
					got = append(got, fmt.Sprint("fast@", at))
				} else {
					got = append(got, fmt.Sprintf("slow@%v:%.2f", at, slow.Ratio))
				}
			})
			if slow := b.Trouble.Slow(); (slow != nil) != (b.Trouble.Speed() < 1) {
				t.Fatalf("%s: %+v, and the speed %v", tc.name, slow, b.Trouble.Speed())
			}
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		all.Look(moment(4*time.Minute), nil, time.Minute, nil)
		if b.Trouble.Slow() != nil {
			t.Errorf("%s: slow although it is down", tc.name)
		}
	}
}
