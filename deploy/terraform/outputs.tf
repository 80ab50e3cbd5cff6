output "bootstrap" {
  value = join(",", [for one in aws_network_interface.node : "${one.private_ip}:9092"])
}

output "http" {
  value = "${aws_network_interface.node[0].private_ip}:8080"
}

output "admin_password" {
  value     = random_password.admin.result
  sensitive = true
}
