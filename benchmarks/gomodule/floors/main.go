// The filter of a scheduler extender that keeps floors, as one would write it in Go: the standard library, one lock.
// It decides as j10ce-extender does for pods that no policy selects, on a picture of nodes and holds that it is given
// at its start: nodes without holds first, else the tightest node whose slack beside the holds suffices, and charges
// the pod until its bind. It moves no holds, follows no watch and names no policies to who is refused.
//
//	floors PICTURE.json PORT [bound-at-once]
//
// bound-at-once: between two calls the pod is bound, as it is in a cluster: its charge does not last.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
)

type filterArgs struct {
	Pod       pod
	NodeNames []string
}

type filterResult struct {
	Nodes                      *struct{}
	NodeNames                  []string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type server struct {
	lock        sync.Mutex
	ledger      *ledger
	boundAtOnce bool
}

func (s *server) filter(args *filterArgs) (filterResult, error) {
	need, err := args.Pod.request()
	if err != nil {
		return filterResult{}, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	nodes := s.ledger.filter(&args.Pod, need, args.NodeNames)
	if s.boundAtOnce {
		s.ledger.land(args.Pod.Metadata.UID)
	}
	result := filterResult{NodeNames: nodes, FailedNodes: map[string]string{}}
	result.FailedAndUnresolvableNodes = map[string]string{}
	if len(nodes) == 0 {
		result.NodeNames = []string{}
		// As j10ce-extender: among many names one stands for all.
		told := args.NodeNames
		if len(told) > 100 {
			told = told[:1]
		}
		for _, name := range told {
			result.FailedAndUnresolvableNodes[name] = "holds are in the way"
		}
	}
	return result, nil
}

func (s *server) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	body, err := read(request)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	var args filterArgs
	if err := json.Unmarshal(body, &args); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	result, err := s.filter(&args)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(result)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	writer.Write(answer)
}

// read takes the whole body, in one piece where its length is said.
func read(request *http.Request) ([]byte, error) {
	if request.ContentLength <= 0 {
		return io.ReadAll(request.Body)
	}
	body := make([]byte, request.ContentLength)
	_, err := io.ReadFull(request.Body, body)
	return body, err
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: floors PICTURE.json PORT [bound-at-once]")
	}
	raw, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var seen picture
	if err := json.Unmarshal(raw, &seen); err != nil {
		log.Fatal(err)
	}
	http.Handle("/filter", &server{ledger: newLedger(&seen), boundAtOnce: len(os.Args) > 3})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[2], nil))
}
