// An extender that reads what it must, keeps nothing in mind and refuses nothing: what the protocol itself costs.
// As one would write it in Go who minds speed: the standard library, connections kept.
//
//	accept-all KUBECONFIG.json PORT
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

type filterArgs struct {
	NodeNames *[]string
}

type filterResult struct {
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type preemptionArgs struct {
	NodeNameToMetaVictims map[string]json.RawMessage
}

type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

type bindingResult struct {
	Error string
}

type binding struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Target     map[string]string `json:"target"`
}

// kubeconfig is as much of one as lab clusters use.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Certificate []byte `json:"client-certificate-data"`
			Key         []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
}

type apiServer struct {
	url    string
	client *http.Client
}

func connect(path string) (*apiServer, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var said kubeconfig
	if err := json.Unmarshal(raw, &said); err != nil {
		return nil, err
	}
	if len(said.Clusters) == 0 || len(said.Users) == 0 {
		return nil, fmt.Errorf("%s names no cluster or no user", path)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(said.Clusters[0].Cluster.CA)
	own, err := tls.X509KeyPair(said.Users[0].User.Certificate, said.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
		MaxIdleConnsPerHost: 256,
	}
	client := &http.Client{Transport: transport, Timeout: 25 * time.Second}
	return &apiServer{said.Clusters[0].Cluster.Server, client}, nil
}

func (api *apiServer) bind(args bindingArgs) error {
	body, err := json.Marshal(binding{
		"v1",
		"Binding",
		map[string]string{"namespace": args.PodNamespace, "name": args.PodName, "uid": args.PodUID},
		map[string]string{"apiVersion": "v1", "kind": "Node", "name": args.Node},
	})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", api.url, args.PodNamespace, args.PodName)
	answer, err := api.client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		return fmt.Errorf("%s", text)
	}
	return err
}

func answer(writer http.ResponseWriter, reply any) {
	body, err := json.Marshal(reply)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	writer.Write(body)
}

// verb reads the arguments, and answers what decide makes of them.
func verb[Args any](decide func(Args) any) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		var args Args
		if err := json.NewDecoder(request.Body).Decode(&args); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		answer(writer, decide(args))
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: accept-all KUBECONFIG.json PORT")
	}
	api, err := connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/filter", verb(func(args filterArgs) any {
		return filterResult{NodeNames: args.NodeNames}
	}))
	http.HandleFunc("/preempt", verb(func(args preemptionArgs) any { return args }))
	http.HandleFunc("/bind", verb(func(args bindingArgs) any {
		if err := api.bind(args); err != nil {
			return bindingResult{err.Error()}
		}
		return bindingResult{}
	}))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[2], nil))
}
