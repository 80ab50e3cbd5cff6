"""HTTP/1.1 for the front ends that use it: connections, requests, routes, error responses.

`connection` parses requests and writes their responses in order, within limits on both.
`application` finds the operation of a request in the front end's table and calls its handler. A
front end whose clients expect other forms than JSON and problem details brings a dialect. This
package does not know which operations there are.
"""
