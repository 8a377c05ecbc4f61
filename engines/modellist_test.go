package engines

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"xpyd/router"
)

// Several answers are made of one list at a time, so none may write into it, nor into the room behind it.
func TestAnswersOfModelsShareNoMemory(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries("http://127.0.0.1:1", "http://127.0.0.1:2")
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{cfg: Config{Router: rt}}
	lists := func(i int, ids ...string) *modelList {
		list := &modelList{Data: make([]json.RawMessage, 0, 8)}
		for _, id := range ids {
			list.Data = append(list.Data, json.RawMessage(fmt.Sprintf(`{"id":%q}`, id)))
		}
		b := rt.Snapshot().Backends(router.Decode)[i]
		s.edit(func(m map[*router.Backend]*engine) {
			m[b] = &engine{}
			m[b].models.Store(list)
		})
		b.SetModels(ids)
		return list
	}
	known := lists(0, "a", "b", "c")
	lists(1, "d")
	first := s.addModels(known.Data)
	lists(1, "e")
	second := s.addModels(known.Data)
	if got, want := fmt.Sprintf("%s %s", first, second), `[{"id":"a"} {"id":"b"} {"id":"c"} {"id":"d"}] [{"id":"a"} {"id":"b"} {"id":"c"} {"id":"e"}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
